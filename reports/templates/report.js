"use strict";
// Closed details would be missing on paper: open them for printing, then put them back.
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((d) => { d.open = true; });
});
window.addEventListener("afterprint", () => { opened.forEach((d) => { d.open = false; }); });
