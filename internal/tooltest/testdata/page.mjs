// Draws the page of documents and prints the operations that are on it.
import { JSDOM } from "jsdom";

const base = process.argv[2];
const get = async (path) => (await fetch(base + path)).text();
const dom = new JSDOM(await get("/docs"), { url: base + "/docs", runScripts: "outside-only", pretendToBeVisual: true });
dom.window.fetch = (path) => fetch(base + path);
dom.window.CSS = { escape: (s) => s };
dom.window.Element.prototype.scrollIntoView = () => {};
dom.window.eval(await get("/docs/docs.js"));
for (let n = 0; n < 300 && !dom.window.document.querySelector(".operation, [role=alert]"); n++) await new Promise((r) => setTimeout(r, 50));
const alert = dom.window.document.querySelector("[role=alert]");
if (alert) throw new Error(alert.textContent);
for (const box of dom.window.document.querySelectorAll(".operation")) console.log(box.id.slice("op-".length));
if (dom.window.document.querySelector("#codes").open) throw new Error("the codes of problems come before the operations");
process.exit(0);
