// A curve under the pointer is named, with its nearest value; an entry of a legend, or a name beside
// a curve, shows and hides it, and with the arrow keys reads its values.
{
  const NEAR = 14; // points of a drawing
  const SVG = "http://www.w3.org/2000/svg";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  document.body.append(tip);
  let shown; // the drawing that the tip is about

  // what is linear on an axis of each kind, and back; "symlog:0.01" is linear up to 0.01
  const kinds = {
    linear: () => [(value) => value, (value) => value],
    log: () => [Math.log, Math.exp],
    symlog: (linear) => [
      (value) => Math.abs(value) < linear ? value / 0.9 : Math.sign(value) * linear * (1 / 0.9 + Math.log10(Math.abs(value) / linear)),
      (value) => Math.abs(value) < linear / 0.9 ? value * 0.9 : Math.sign(value) * linear * 10 ** (Math.abs(value) / linear - 1 / 0.9),
    ],
  };

  // "log 43 255 0.1 10": place 43 has the value 0.1, and place 255 the value 10
  const scale = (text, edges = "-inf inf") => {
    const [kind, ...numbers] = text.split(" ");
    const [from, to, least, most] = numbers.map(Number);
    const [name, linear] = kind.split(":");
    const [onto, back] = kinds[name]?.(+linear) ?? [];
    const share = (place) => (place - from) / (to - from);
    const value = (place) => back(onto(least) + share(place) * (onto(most) - onto(least)));
    // the shortest number that is at the place, which has three digits behind the point
    const written = (place) => {
      const ends = [value(place - 0.0006), value(place + 0.0006)];
      const short = [0, ...[1, 2, 3].map((digits) => Number(value(place).toPrecision(digits)))];
      const exact = short.find((number) => Math.min(...ends) <= number && number <= Math.max(...ends));
      const number = exact ?? short[3];
      const [lowest, highest] = edges.split(" ").map((edge) => Number(edge.replace("inf", "Infinity")));
      if (Math.min(...ends) <= lowest) return `≤ ${lowest}`; // what is beyond is drawn there
      if (Math.max(...ends) >= highest) return `≥ ${highest}`;
      return number && Math.abs(number) < 1e-3 ? number.toExponential() : String(number);
    };
    return { inside: (place) => share(place) > -0.005 && share(place) < 1.005, written: back && written };
  };

  // where a curve has its values: at its markers, or at the corners of its line
  const corners = (group) => {
    const markers = [...group.querySelectorAll("use")];
    if (markers.length) return markers.map((marker) => [+marker.getAttribute("x"), +marker.getAttribute("y")]);
    const numbers = (group.querySelector("path")?.getAttribute("d") ?? "").match(/-?[\d.]+(?:e-?\d+)?/g) ?? [];
    return Array.from({ length: numbers.length >> 1 }, (_, i) => [+numbers[2 * i], +numbers[2 * i + 1]]);
  };

  const distance = ([x, y], [a, b], [c, d]) => {
    const length = (c - a) ** 2 + (d - b) ** 2;
    const along = length ? Math.max(0, Math.min(1, ((x - a) * (c - a) + (y - b) * (d - b)) / length)) : 0;
    return Math.hypot(a + along * (c - a) - x, b + along * (d - b) - y);
  };

  const toCurve = (place, { points, joined }) =>
    Math.min(...points.map((point, i) => distance(place, point, joined && i ? points[i - 1] : point)));

  class Drawing {
    constructor(svg) {
      this.svg = svg;
      this.off = new Set();
      this.axes = [...svg.querySelectorAll("[data-x]")].map((group) => {
        const { x, y, xName, yName, edges } = group.dataset;
        const axes = { x: scale(x), y: scale(y, edges), names: [xName, yName] };
        axes.curves = [...group.querySelectorAll("[data-curve]")].map((curve) => ({
          name: curve.dataset.curve,
          joined: curve.querySelector("path") !== null,
          points: corners(curve),
          axes,
        }));
        return axes;
      });
      this.dot = document.createElementNS(SVG, "circle");
      this.dot.setAttribute("class", "dot");
      this.dot.setAttribute("r", 3.5);
    }

    // the point of a curve that is nearest to a place, if any is near
    nearest(place) {
      const axes = this.axes.find(({ x, y }) => x.inside(place[0]) && y.inside(place[1]));
      const curves = (axes?.curves ?? []).filter(({ name, points }) => points.length && !this.off.has(name));
      const [away, curve] = curves.reduce((best, curve) => {
        const far = toCurve(place, curve);
        return far <= best[0] ? [far, curve] : best; // the later is on top
      }, [NEAR, null]);
      return curve && this.seen(curve).reduce((best, point) =>
        Math.hypot(point[0] - place[0], point[1] - place[1]) < Math.hypot(best[0] - place[0], best[1] - place[1]) ? point : best,
      [Infinity, Infinity]).concat(curve);
    }

    seen({ points, axes }) {
      return points.filter(([x, y]) => axes.x.inside(x) && axes.y.inside(y));
    }

    show(x, y, { name, axes }) {
      const lines = [axes.x.written?.(x), axes.y.written?.(y)].map((value, i) => [axes.names[i], value]);
      for (const [key, value] of [["cx", x], ["cy", y]]) this.dot.setAttribute(key, value);
      this.say(name, Number.isFinite(x) ? lines.filter(([, value]) => value !== undefined) : [], [x, y]);
      this.single(name);
    }

    say(name, lines, [x, y]) {
      tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: name }));
      for (const [what, value] of lines) {
        const line = document.createElement("span");
        line.append(`${what} `, Object.assign(document.createElement("strong"), { textContent: value }));
        tip.append(line);
      }
      tip.hidden = false;
      shown = this;
      this.dot.remove();
      if (!Number.isFinite(x)) return;
      this.svg.append(this.dot);
      const at = new DOMPoint(x, y).matrixTransform(this.svg.getScreenCTM());
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(8, Math.min(at.x + 14, document.documentElement.clientWidth - width - 8))}px`;
      tip.style.top = `${at.y - height - 14 < 8 ? at.y + 14 : at.y - height - 14}px`;
    }

    single(name) {
      for (const part of this.parts()) part.classList.toggle("faint", name !== undefined && nameOf(part) !== name);
    }

    parts() {
      return this.svg.querySelectorAll("[data-curve], [data-band], [data-handle], [data-entry]");
    }

    hide() {
      tip.hidden = true;
      this.dot.remove();
      this.single();
    }

    switch(name) {
      if (!this.off.delete(name)) this.off.add(name);
      for (const part of this.parts()) part.classList.toggle("off", this.off.has(nameOf(part)));
      for (const entry of this.svg.querySelectorAll("[data-entry]"))
        entry.setAttribute("aria-pressed", !this.off.has(entry.dataset.entry));
      this.hide();
    }

    // the values of all curves of a name, one after the other
    step(name, by) {
      const points = this.axes.flatMap((axes) => axes.curves).filter((curve) => curve.name === name)
        .flatMap((curve) => this.seen(curve).map((point) => [...point, curve]));
      if (!points.length || this.off.has(name)) return;
      this.at = this.stepped === name ? (this.at + by + points.length) % points.length : by > 0 ? 0 : points.length - 1;
      this.stepped = name;
      this.show(...points[this.at]);
    }
  }

  const nameOf = ({ dataset }) => dataset.curve ?? dataset.band ?? dataset.handle ?? dataset.entry;

  const button = (drawing, entry) => {
    const name = entry.dataset.entry;
    const sample = [...drawing.svg.querySelectorAll("[data-handle]")].find((handle) => nameOf(handle) === name);
    const boxes = [entry, ...(sample ? [sample] : [])].map((part) => part.getBBox());
    const left = Math.min(...boxes.map((box) => box.x)) - 3;
    const top = Math.min(...boxes.map((box) => box.y)) - 2;
    const area = document.createElementNS(SVG, "rect");
    area.setAttribute("x", left);
    area.setAttribute("y", top);
    area.setAttribute("width", Math.max(...boxes.map((box) => box.x + box.width)) + 3 - left);
    area.setAttribute("height", Math.max(...boxes.map((box) => box.y + box.height)) + 2 - top);
    area.setAttribute("class", "area");
    entry.prepend(area);
    for (const [key, value] of Object.entries({ role: "button", tabindex: 0, "aria-pressed": true, "aria-label": name }))
      entry.setAttribute(key, value);
    entry.addEventListener("click", () => drawing.switch(name));
    entry.addEventListener("pointerenter", () => drawing.off.has(name) || drawing.single(name));
    entry.addEventListener("focus", () => drawing.off.has(name) || drawing.single(name));
    for (const gone of ["pointerleave", "blur"]) entry.addEventListener(gone, () => drawing.hide());
    entry.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1 };
      if (event.key === "Enter" || event.key === " ") drawing.switch(name);
      else if (event.key === "Escape") drawing.hide();
      else if (event.key in steps) drawing.step(name, steps[event.key]);
      else return;
      event.preventDefault();
    });
  };

  const started = new WeakSet();
  const start = () => {
    for (const svg of document.querySelectorAll("svg.drawing:has([data-curve])")) {
      if (started.has(svg) || !svg.getClientRects().length) continue; // not in a closed appendix
      started.add(svg);
      const drawing = new Drawing(svg);
      svg.setAttribute("role", "group");
      for (const entry of svg.querySelectorAll("[data-entry]")) button(drawing, entry);
      const point = (event) => {
        if (event.target.closest("[data-entry]")) return;
        const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        const found = drawing.nearest([x, y]);
        if (found) drawing.show(...found);
        else drawing.hide();
      };
      svg.addEventListener("pointermove", point);
      svg.addEventListener("pointerdown", (event) => {
        document.activeElement?.blur(); // which hides what it showed, before and not after
        point(event);
      });
      svg.addEventListener("pointerleave", (event) => event.pointerType === "touch" || drawing.hide());
    }
  };
  document.addEventListener("pointerdown", ({ target }) => shown?.svg.contains(target) || shown?.hide());
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  document.addEventListener("toggle", start, true);
  document.addEventListener("input", start); // a slider shows another panel
  start();
}
