// A long list of items of any height: drawn in pages of fifty near the window, elsewhere an empty block of the height
// that the page had. The document stays small however long the conversation is.

const PAGE = 50;
const GUESS = 120;

export class Pages {
  #draw;
  #pages = [];
  #watch;

  constructor(scroller, node, draw) {
    this.node = node;
    this.#draw = draw;
    this.#watch = new IntersectionObserver((entries) => entries.forEach((entry) => this.#seen(entry)), { root: scroller, rootMargin: "1200px 0px" });
  }

  // Sets the items. Pages whose items are the same objects at the same place keep their elements.
  set(items) {
    const wanted = Math.ceil(items.length / PAGE);
    while (this.#pages.length > wanted) this.#drop(this.#pages.pop());
    for (let place = 0; place < wanted; place += 1) {
      const slice = items.slice(place * PAGE, (place + 1) * PAGE);
      const page = this.#pages[place] ?? this.#add();
      const changed = page.items.length !== slice.length || slice.some((item, at) => item !== page.items[at] || item.changed);
      page.items = slice;
      if (changed && page.isDrawn) this.#fill(page);
      else if (changed && !page.height) page.node.style.height = `${slice.length * GUESS}px`;
    }
  }

  redraw() {
    for (const page of this.#pages) if (page.isDrawn) this.#fill(page);
  }

  // Brings an item into view, drawing its page first.
  reveal(place) {
    const page = this.#pages[Math.floor(place / PAGE)];
    if (!page) return null;
    this.#fill(page);
    const node = page.node.children[place % PAGE];
    node?.scrollIntoView({ block: "start" });
    return node;
  }

  stop() {
    this.#watch.disconnect();
  }

  #add() {
    const page = { node: document.createElement("div"), items: [], isDrawn: false, height: 0 };
    page.node.className = "items";
    page.node.page = page;
    this.#pages.push(page);
    this.node.append(page.node);
    this.#watch.observe(page.node);
    return page;
  }

  #drop(page) {
    this.#watch.unobserve(page.node);
    page.node.remove();
  }

  #seen({ target, isIntersecting }) {
    const { page } = target;
    if (isIntersecting && !page.isDrawn) this.#fill(page);
    if (!isIntersecting && page.isDrawn) {
      page.height = page.node.offsetHeight;
      page.isDrawn = false;
      page.node.replaceChildren();
      page.node.style.height = `${page.height}px`;
    }
  }

  #fill(page) {
    page.isDrawn = true;
    page.node.style.height = "";
    page.node.replaceChildren(...page.items.map((item) => this.#draw(item)));
    for (const item of page.items) item.changed = false;
  }
}
