/* A page that only has to fit its iframe, if it stands in one. */

import { fitFrame } from "./frame.js";

fitFrame();
