// Pictures of the report for the site's first page, in both colour schemes: node site/pictures.mjs target/site
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { browser, open } from "../crates/idlewise-report/page/tests/browser.mjs";

const folder = resolve(process.argv[2]);
for (const theme of ["light", "dark"]) {
    const address = pathToFileURL(join(folder, "report.html")).href;
    const { page, close } = await open(null, { address, width: 1000, height: 720, theme });
    await page.screenshot({ path: join(folder, `report-${theme}.png`) });
    await close();
}
await browser.close();
