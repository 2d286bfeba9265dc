// Prints the licenses of the packages whose code may be in the bundle: all that are not for building.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const { packages } = JSON.parse(readFileSync("package-lock.json", "utf8"));
const folders = Object.keys(packages).filter((folder) => folder && !packages[folder].dev);
process.stdout.write("page.js holds code of these packages.\n");
for (const folder of folders.sort()) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} has no file of its license`);
  const text = readFileSync(join(folder, file), "utf8").trim();
  process.stdout.write(`\n${"-".repeat(79)}\n${name} ${version} (${license})\n\n${text}\n`);
}
