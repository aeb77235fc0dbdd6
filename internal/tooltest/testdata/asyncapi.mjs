// Parses an AsyncAPI document and prints how many channels it has.
import { Parser } from "@asyncapi/parser";
import { readFileSync } from "node:fs";

const { document, diagnostics } = await new Parser().parse(readFileSync(process.argv[2], "utf8"));
const errors = diagnostics.filter((d) => d.severity === 0);
for (const e of errors) console.error(e.code, e.path.join("/"), e.message);
if (!document || errors.length) process.exit(1);
console.log(document.channels().all().length + " channels");
