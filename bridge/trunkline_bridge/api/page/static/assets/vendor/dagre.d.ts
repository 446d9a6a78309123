// Types of dagre.js; written by scripts/vendor_page.
export { Graph, layout } from "@dagrejs/dagre";
