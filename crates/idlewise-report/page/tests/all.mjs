// All tests of the page, in one process and one browser: the machine is shared.
import { after } from "node:test";
import { browser } from "./browser.mjs";
import "./layout.mjs";
import "./looks.mjs";
import "./page.mjs";
import "./real.mjs";
import "./timeline.mjs";

after(() => browser.close());
