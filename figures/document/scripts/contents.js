// The contents follow the reading: the section in sight is marked, and named in the bar of a phone.
{
  const nav = document.querySelector("#TOC");
  const contents = nav.querySelector("details");
  const links = [...nav.querySelectorAll(".toc a")];
  const headings = links.map(target);
  const narrow = matchMedia("(max-width: 72rem)");

  const follow = () => {
    const line = innerHeight / 4;
    const atEnd = scrollY > 0 && innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const seen = headings.filter((heading) => heading?.getClientRects().length);
    const passed = seen.filter((heading) => heading.getBoundingClientRect().top <= line);
    const now = links[headings.indexOf(atEnd ? seen.at(-1) : passed.at(-1))];
    for (const link of links)
      if (link === now) link.setAttribute("aria-current", "location");
      else link.removeAttribute("aria-current");
    nav.querySelector(".here").textContent = now ? now.textContent : "";
    if (now && !narrow.matches && !nav.matches(":hover, :focus-within")) {
      const middle = now.offsetTop - nav.clientHeight / 2;
      nav.scrollTop = Math.max(0, middle);
    }
  };

  const fit = () => {
    contents.open = !narrow.matches || matchMedia("print").matches;
  };

  let waiting = false;
  const soon = () => {
    if (!waiting) requestAnimationFrame(() => { waiting = false; follow(); });
    waiting = true;
  };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon);
  narrow.addEventListener("change", fit);
  addEventListener("beforeprint", () => { contents.open = true; });
  addEventListener("afterprint", fit);
  nav.addEventListener("click", (event) => {
    if (narrow.matches && event.target.closest("a")) contents.open = false;
  });
  nav.addEventListener("keydown", (event) => {
    if (narrow.matches && event.key === "Escape") contents.open = false;
  });
  document.documentElement.classList.add("scripted");
  fit();
  follow();
}
