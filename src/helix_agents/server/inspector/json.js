// JSON without rounding: integers that a number cannot hold exactly are read as BigInt and written as digits.
//
// Such an integer passes through JSON.parse and JSON.stringify as a string with a random prefix.

const MARK = `integer ${crypto.getRandomValues(new Uint32Array(4)).join("-")} `;
const MANY_DIGITS = /\d{16}/;
const STRINGS_AND_INTEGERS = /"(?:[^"\\]|\\.)*"|-?\d{16,}(?![\d.eE])/g;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, "g");

export function parseJson(text) {
	if (!MANY_DIGITS.test(text)) return JSON.parse(text);
	const marked = text.replace(STRINGS_AND_INTEGERS, (found) => (found[0] === '"' || Number.isSafeInteger(Number(found)) ? found : `"${MARK}${found}"`));
	return JSON.parse(marked, (_, value) => (typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value));
}

export function writeJson(value, indent) {
	const text = JSON.stringify(value, (_, each) => (typeof each === "bigint" ? `${MARK}${each}` : each), indent) ?? "null";
	return text.includes(MARK) ? text.replace(MARKED, "$1") : text;
}
