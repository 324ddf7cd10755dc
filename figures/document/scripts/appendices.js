// Appendices are closed until a link or the printer leads into them. Without this script
// they are open.
const appendices = document.querySelectorAll("details.appendix");

const reveal = (element) => {
  for (let around = element?.closest("details"); around; around = around.parentElement.closest("details"))
    around.open = true;
};

const target = (link) => document.getElementById(decodeURIComponent(link.hash.slice(1)));

for (const appendix of appendices) appendix.open = false;
reveal(target(location));
addEventListener("hashchange", () => {
  reveal(target(location));
  target(location)?.scrollIntoView();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link) reveal(target(link)); // before the browser goes there
});
{
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...appendices].filter((appendix) => !appendix.open);
    for (const appendix of appendices) appendix.open = true;
  });
  addEventListener("afterprint", () => {
    for (const appendix of closed) appendix.open = false;
  });
}
