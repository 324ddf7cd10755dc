// A curve under the pointer is named, with its nearest value; an entry of a legend, or a name beside
// a curve, shows and hides it, and with the arrow keys reads its values. Of a heat map, the cell under
// the pointer is named, or the one that the arrow keys lead to.
{
  const NEAR = 14; // points of a drawing
  const ON = 4; // of a curve across a heat map
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
  const scale = (text, edges = "-inf inf", near = 0.0006) => {
    const [kind, ...numbers] = text.split(" ");
    const [from, to, least, most] = numbers.map(Number);
    const [name, linear] = kind.split(":");
    const [onto, back] = kinds[name]?.(+linear) ?? [];
    const share = (place) => (place - from) / (to - from);
    const value = (place) => back(onto(least) + share(place) * (onto(most) - onto(least)));
    // the shortest number that is at the place, which has three digits behind the point if none is said
    const written = (place) => {
      const ends = [value(place - near), value(place + near)];
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

  // the cell of a row, or of a column, that a place is in, and where a cell is; two edges are of many
  const line = (edges, count) => {
    const many = edges.length === 2 && count > 1;
    const edge = (i) => many ? edges[0] + (edges[1] - edges[0]) * i / count : edges[i];
    const inside = (place) => (_, i) => (edge(i) - place) * (edge(i + 1) - place) <= 0;
    const places = Array.from({ length: count });
    return { count, falls: edges.at(-1) < edges[0], edge, at: (place) => places.findIndex(inside(place)) };
  };

  // the colours of a picture, a number each, once they are there
  const pixelsOf = (use) => {
    const found = {};
    const { width, height, href } = document.querySelector(use.getAttribute("href"));
    const [across, down] = [width.baseVal.value, height.baseVal.value];
    const picture = Object.assign(new Image(), { src: href.baseVal });
    picture.decode().then(() => {
      const canvas = Object.assign(document.createElement("canvas"), { width: across, height: down });
      const context = canvas.getContext("2d", { willReadFrequently: true });
      context.drawImage(picture, 0, 0);
      const { data } = context.getImageData(0, 0, across, down);
      found.at = (column, row) => [...data.slice(4 * (row * across + column), 4 * (row * across + column) + 3)];
    });
    return found;
  };

  // what the cells of a part of a heat map are: numbers and words, or colours on a scale of them
  const reader = (map, use) => {
    if (map.values) return ({ column, row }) => map.values[row][column];
    const parts = (text) => text.match(/../g).map((digits) => parseInt(digits, 16));
    const colours = map.colours.match(/.{6}/g).map(parts);
    const far = (one, other) => Math.hypot(...one.map((value, i) => value - other[i]));
    const values = scale(map.scale, map.beyond, 0.5); // a colour is that of half a level more or less
    const pixels = pixelsOf(use);
    return ({ column, row }) => {
      const colour = pixels.at?.(column, row);
      if (!colour) return "…";
      const away = colours.map((other) => far(colour, other));
      if (map.below && Math.min(...away) > far(colour, parts(map.below.colour))) return map.below.said;
      return values.written(away.indexOf(Math.min(...away)) + 0.5);
    };
  };

  class Drawing {
    constructor(svg) {
      this.svg = svg;
      this.off = new Set();
      this.axes = [...svg.querySelectorAll("[data-x]")].map((group) => {
        const { x, y, xName, yName, edges, cells } = group.dataset;
        const axes = { x: scale(x), y: scale(y, edges), names: [xName, yName], near: cells ? ON : NEAR };
        axes.parts = cells ? this.map(group, JSON.parse(cells)) : [];
        axes.curves = [...group.querySelectorAll("[data-curve]")].map((curve) => ({
          name: curve.dataset.curve,
          joined: curve.querySelector("path") !== null,
          points: corners(curve),
          axes,
        }));
        return axes;
      });
      [this.dot, this.frame] = ["circle", "rect"].map((shape) => document.createElementNS(SVG, shape));
      for (const mark of [this.dot, this.frame]) mark.setAttribute("class", "dot");
      this.dot.setAttribute("r", 3.5);
    }

    // the parts of a heat map; an area over all of them takes the keyboard
    map(group, map) {
      const pictures = group.querySelectorAll("[data-picture]");
      for (const names of ["columns", "rows"]) map[names] = map[names].split("\t");
      map.values = map.values?.map((row) => row.split("\t"));
      const parts = map.parts.map(({ name, x, y }, i) => {
        const [across, up] = [line(x, map.columns.length), line(y, map.rows.length)];
        return { name, title: name || map.title, map, across, up, read: reader(map, pictures[i]) };
      });
      const area = document.createElementNS(SVG, "rect");
      const [xs, ys] = ["x", "y"].map((name) => map.parts.flatMap((part) => part[name]));
      const [left, top] = [Math.min(...xs), Math.min(...ys)];
      const box = { x: left, y: top, width: Math.max(...xs) - left, height: Math.max(...ys) - top };
      const label = [...new Set([map.title || map.what[2], ...map.what])].filter(Boolean).join(", ");
      const said = { class: "area map", tabindex: 0, role: "application", "aria-label": label };
      for (const [key, value] of Object.entries({ ...box, ...said })) area.setAttribute(key, value);
      let at = { part: parts[0], column: 0, row: 0 };
      const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
      area.addEventListener("focus", () => area.matches(":focus-visible") && this.showCell(at));
      area.addEventListener("blur", () => this.hide());
      area.addEventListener("keydown", (event) => {
        if (event.key === "Escape") this.hide();
        else if (event.key in steps) this.showCell(at = this.beside(at, parts, steps[event.key]));
        else return;
        event.preventDefault();
      });
      group.append(area);
      return parts;
    }

    // the next cell to the right and down, which may be one of the next part
    beside({ part, column, row }, parts, [right, down]) {
      const [across, up] = [part.across.falls ? -right : right, part.up.falls ? -down : down];
      const next = { part, column: column + across, row: Math.max(0, Math.min(part.up.count - 1, row + up)) };
      if (next.column in part.map.columns) return next;
      const other = parts[parts.indexOf(part) + right];
      return other ? { part: other, column: (across < 0) === (right < 0) ? (right < 0 ? other.across.count - 1 : 0) : column, row } : { part, column, row };
    }

    cell([x, y]) {
      for (const part of this.axes.flatMap((axes) => axes.parts)) {
        const [column, row] = [part.across.at(x), part.up.at(y)];
        if (column >= 0 && row >= 0) return { part, column, row };
      }
      return null;
    }

    showCell({ part, column, row }) {
      const { title, map, across, up, read } = part;
      const values = [map.columns[column], map.rows[row], read({ column, row })];
      const [[left, right], [top, bottom]] = [[across, column], [up, row]].map(([{ edge }, i]) => [edge(i), edge(i + 1)].sort((a, b) => a - b));
      for (const [key, value] of Object.entries({ x: left - 1, y: top - 1, width: right - left + 2, height: bottom - top + 2 }))
        this.frame.setAttribute(key, value);
      this.say(title, map.what.map((what, i) => [what, values[i]]), this.frame, [(left + right) / 2, (top + bottom) / 2]);
    }

    // the point of a curve that is nearest to a place, if any is near
    nearest(place) {
      const axes = this.axes.find(({ x, y }) => x.inside(place[0]) && y.inside(place[1]));
      const curves = (axes?.curves ?? []).filter(({ name, points }) => points.length && !this.off.has(name));
      const [away, curve] = curves.reduce((best, curve) => {
        const far = toCurve(place, curve);
        return far <= best[0] ? [far, curve] : best; // the later is on top
      }, [axes?.near, null]);
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
      this.say(name, Number.isFinite(x) ? lines.filter(([, value]) => value !== undefined) : [], this.dot, [x, y]);
      this.single(name);
    }

    say(name, lines, mark, [x, y]) {
      tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: name }));
      for (const [what, value] of lines) {
        const line = document.createElement("span");
        line.append(`${what} `, Object.assign(document.createElement("strong"), { textContent: value }));
        tip.append(line);
      }
      tip.hidden = false;
      shown = this;
      for (const other of [this.dot, this.frame]) other.remove();
      if (!Number.isFinite(x)) return;
      this.svg.append(mark);
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
      for (const mark of [this.dot, this.frame]) mark.remove();
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
    for (const svg of document.querySelectorAll("svg.drawing:has([data-curve], [data-cells])")) {
      if (started.has(svg) || !svg.getClientRects().length) continue; // not in a closed appendix
      started.add(svg);
      const drawing = new Drawing(svg);
      svg.setAttribute("role", "group");
      for (const entry of svg.querySelectorAll("[data-entry]")) button(drawing, entry);
      const point = (event) => {
        if (event.target.closest("[data-entry]")) return;
        const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
        const [found, cell] = [drawing.nearest([x, y]), drawing.cell([x, y])];
        if (found) drawing.show(...found);
        else if (cell) drawing.showCell(cell);
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
