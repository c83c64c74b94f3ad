// A table that is wider than the screen can be scrolled with the keyboard, too.
const widths = new ResizeObserver((changed) => {
  for (const { target } of changed) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
// The theme has put every table into one of these when it tells of the page.
document$.subscribe(() => {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap")) widths.observe(wrap);
});
