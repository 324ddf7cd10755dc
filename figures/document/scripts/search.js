// Search: the box lists what has all the words typed, headings first. "/" leads to it, Escape out.
{
  const MOST = 40; // results shown
  const AROUND = 60; // characters before what was found
  const nav = document.querySelector("#TOC");
  const box = nav.querySelector(".search");
  const input = box.querySelector("input");
  const results = box.querySelector("ul");
  const said = box.querySelector("[role=status]");
  let places;

  const folded = (text) => text.toLowerCase();

  const textOf = (element) => {
    const copy = element.cloneNode(true);
    for (const twice of copy.querySelectorAll("annotation")) twice.remove(); // a formula's TeX
    for (const cell of copy.querySelectorAll("td, th")) cell.append(" ");
    for (const raised of copy.querySelectorAll("sup, msup > :last-child")) raised.prepend("^");
    return copy.textContent.replace(/\s+/g, " ").trim();
  };

  const read = () => {
    let section = "";
    const found = document.querySelectorAll("main :is(h2, h3, h4, h5, figcaption, p, li, tr, dt, dd, pre), .abstract p");
    return [...found].filter((element) => !element.parentElement.closest("figcaption, li, tr, .panels")).map((element, place) => {
      const heading = /^H\d$/.test(element.tagName);
      const text = textOf(element);
      if (heading) section = text;
      const label = element.closest("figure")?.querySelector("figcaption strong")?.textContent;
      const rank = heading ? 0 : element.tagName === "FIGCAPTION" ? 1 : 2;
      const where = heading ? "" : element.tagName === "TR" && label ? `${section} · ${label}` : section;
      return { element, text, folded: folded(text), rank, where, place };
    });
  };

  const excerpt = (text, words) => {
    const at = Math.min(...words.map((word) => folded(text).indexOf(word)));
    const from = at < AROUND ? 0 : text.indexOf(" ", at - AROUND) + 1; // a word is not cut
    const piece = text.slice(from, at + 2 * AROUND);
    const marked = document.createElement("span");
    let done = 0;
    marked.append(from ? "…" : "");
    while (true) {
      const next = words.map((word) => [folded(piece).indexOf(word, done), word.length]).filter(([start]) => start >= 0);
      if (!next.length) break;
      const [start, length] = next.reduce((a, b) => (b[0] < a[0] ? b : a));
      const mark = document.createElement("mark");
      mark.append(piece.slice(start, start + length));
      marked.append(piece.slice(done, start), mark);
      done = start + length;
    }
    marked.append(piece.slice(done), from + piece.length < text.length ? "…" : "");
    return marked;
  };

  const show = () => {
    const words = folded(input.value).split(/\s+/).filter(Boolean);
    nav.classList.toggle("searching", words.length > 0);
    results.replaceChildren();
    said.textContent = "";
    if (!words.length) return;
    places ??= read();
    const found = places.filter((place) => words.every((word) => place.folded.includes(word)));
    found.sort((a, b) => a.rank - b.rank || a.place - b.place);
    said.textContent = found.length ? box.dataset.found.replace("#", found.length) : box.dataset.none;
    for (const { element, text, where, place } of found.slice(0, MOST)) {
      element.id ||= `place-${place}`;
      const link = document.createElement("a");
      link.href = `#${element.closest("figure[id]") && element.tagName === "FIGCAPTION" ? element.closest("figure[id]").id : element.id}`;
      const context = document.createElement("small");
      context.append(where);
      link.append(...(where ? [context] : []), excerpt(text, words));
      const item = document.createElement("li");
      item.append(link);
      results.append(item);
    }
  };

  const leave = () => {
    input.value = "";
    show();
    document.activeElement.blur();
  };

  input.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=range]), textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      reveal(input);
      input.focus();
    }
  });
  nav.addEventListener("keydown", (event) => {
    const links = [...results.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Escape") leave();
    else if (event.key === "Enter" && event.target === input) links[0]?.click();
    else if (event.key === "ArrowDown" && links.length) links[Math.min(at + 1, links.length - 1)].focus();
    else if (event.key === "ArrowUp" && at >= 0) (links[at - 1] ?? input).focus();
    else return;
    event.preventDefault();
  });
  box.hidden = false;
}
