// Light or dark: the reader's choice, kept in this browser; without one the system decides.

const KEY = "helix-theme";

export function applyTheme() {
	const chosen = localStorage.getItem(KEY);
	if (chosen) document.documentElement.dataset.theme = chosen;
}

export function toggleTheme() {
	const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
	localStorage.setItem(KEY, now === "dark" ? "light" : "dark");
	applyTheme();
}
