"""How long the frames of a page take while it scrolls. For people to read: no test fails because of a time."""

from __future__ import annotations

from playwright.async_api import Page

SCROLL = """async ([selector, by, times]) => {
  const node = document.querySelector(selector);
  const frames = [];
  let last = await new Promise(requestAnimationFrame);
  for (let time = 0; time < times; time += 1) {
    node.scrollTop += by;
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
  }
  frames.sort((a, b) => a - b);
  const at = (part) => Math.round(frames[Math.floor(part * (frames.length - 1))] * 10) / 10;
  const slow = frames.filter((each) => each > 50).length;
  return { median_ms: at(0.5), p95_ms: at(0.95), longest_ms: at(1), above_50_ms: slow };
}"""


async def frames_while_scrolling(page: Page, selector: str, by: int, times: int) -> dict[str, float]:
    """Scroll by this many pixels in each of this many frames; return how long the frames took."""
    found: dict[str, float] = await page.evaluate(SCROLL, [selector, by, times])
    return found
