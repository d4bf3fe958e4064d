/* Which tables are wider than their box, and whether their first column leaves room for others. */
(() => {
  const mark = () => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
      const first = box.querySelector("tr > :first-child");
      const wide = box.scrollWidth > box.clientWidth + 1;
      box.classList.toggle("wide", wide);
      box.classList.toggle("keeps", wide && first.offsetWidth < 0.4 * box.clientWidth);
    }
  };
  window.addEventListener("load", () => {
    mark();
    window.addEventListener("resize", mark);
  });
})();
