(() => {
  'use strict';
  const NS = 'http://www.w3.org/2000/svg', LEFT = 64, RIGHT = 1184, WIDE = RIGHT - LEFT;
  const all = (from, what) => [...from.querySelectorAll(what)];
  const make = (name, values) => {
    const made = document.createElementNS(NS, name);
    for (const key in values) made.setAttribute(key, values[key]);
    return made;
  };

  // -- tables: search, sort, show more ---------------------------------------------------------
  const shown = 25;  // as in report.css, which hides further rows until the table is ready
  for (const table of all(document, 'table.sorts')) {
    const body = table.tBodies[0], box = table.closest('section');
    const field = box.querySelector('input[type=search]'), count = box.querySelector('.count');
    let rows = [...body.rows], whole = rows.length <= shown;
    const more = document.createElement('button');
    more.type = 'button'; more.className = 'more';
    const refresh = () => {
      const word = field ? field.value.trim().toLowerCase() : '';
      let fits = 0;
      for (const row of rows) {
        const fit = !word || row.textContent.toLowerCase().includes(word);
        fits += fit;
        row.hidden = !fit || (!whole && fits > shown);
      }
      more.hidden = whole || fits <= shown;
      more.textContent = 'Show all ' + fits;
      const seen = word || more.hidden ? fits : shown;
      if (count) count.textContent = (seen < rows.length ? seen + ' of ' : '') + rows.length + ' rows';
    };
    more.onclick = () => { whole = true; refresh(); };
    table.after(more);
    table.classList.add('ready');
    if (field) { field.oninput = refresh; field.closest('.tools').hidden = false; }
    const heads = [...table.tHead.rows[0].cells];
    const value = (row, at) => {
      const cell = row.cells[at], key = cell.dataset.v;
      return key === undefined ? cell.textContent : key === '' ? -Infinity : parseFloat(key);
    };
    heads.forEach((head, at) => {
      const button = head.querySelector('button');
      if (!button) return;
      button.disabled = false;
      button.onclick = () => {
        const up = head.getAttribute('aria-sort') !== 'ascending';
        for (const other of heads) if (other.hasAttribute('aria-sort')) other.setAttribute('aria-sort', 'none');
        head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        const keyed = rows.map(row => [value(row, at), row]);
        keyed.sort((one, two) => (one[0] > two[0] ? 1 : one[0] < two[0] ? -1 : 0) * (up ? 1 : -1));
        rows = keyed.map(pair => pair[1]);
        body.append(...rows);
        refresh();
      };
    });
    refresh();
  }

  // -- plots: one cursor, one zoom -------------------------------------------------------------
  const label = (time, step) => {
    if (step < 1e-3) return (time * 1000).toFixed(Math.max(0, Math.ceil(-Math.log10(step * 1000)))) + ' ms';
    return time.toFixed(Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))) + ' s';
  };
  const clock = time => {
    const minutes = Math.floor(time / 60), hours = Math.floor(minutes / 60), two = value => String(value).padStart(2, '0');
    return (hours ? hours + ':' + two(minutes % 60) : minutes) + ':' + two(Math.round(time % 60));
  };
  class Plot {
    constructor(svg) {
      this.svg = svg;
      this.start = this.from = parseFloat(svg.dataset.start);
      this.end = this.to = parseFloat(svg.dataset.end);
      this.height = svg.viewBox.baseVal.height;
      this.axis = svg.querySelector('.xaxis');
      this.axisHtml = [...this.axis.childNodes];
      this.paths = all(svg, 'path[d]').filter(path => !path.closest('defs') && !path.classList.contains('grid')).map(path => ({
        path, whole: path.getAttribute('d'), line: /\b(steps|stair|line)\b/.test(path.getAttribute('class')),
        parts: [...path.getAttribute('d').matchAll(/([ML])([\d.-]+) ([\d.-]+)([^ML]*)/g)].map(m => [m[1], +m[2], m[3], m[4]]),
        frames: path.dataset.f === undefined ? null : path.dataset.f.split(','), what: path.dataset.w || ''}));
      this.boxes = all(svg, 'rect.bar,rect.band').map(box => ({box, x: +box.getAttribute('x'), w: +box.getAttribute('width')}));
      this.words = all(svg, '.bandtext').map(word => ({word, x: +word.getAttribute('x')}));
      this.cursor = make('line', {class: 'cursor', y1: 0, y2: this.height - 26, visibility: 'hidden'});
      svg.append(this.cursor);
    }
    time(x) { return this.from + (x - LEFT) / WIDE * (this.to - this.from); }
    place(time) { return LEFT + (time - this.from) / (this.to - this.from) * WIDE; }
    moved(x) { return this.place(this.start + (x - LEFT) / WIDE * (this.end - this.start)); }
    show(from, to) {
      const low = Math.max(this.start, from), high = Math.min(this.end, to);
      // Below a microsecond, a step between ticks is lost in rounding: the loop would never end.
      if (high > low && high - low < 1e-6) return;
      this.from = low; this.to = high;
      if (!(high > low)) { this.from = this.start; this.to = this.end; }
      const whole = this.from === this.start && this.to === this.end;
      const cut = x => Math.min(RIGHT, Math.max(LEFT, x));
      for (const one of this.paths) {
        if (whole) { one.path.setAttribute('d', one.whole); continue; }
        let path = '';
        for (let i = 0; i < one.parts.length; i++) {
          const [kind, x, y, rest] = one.parts[i], at = this.moved(x);
          if (one.line) path += kind + cut(at).toFixed(2) + ' ' + y + rest;
          else if (at >= LEFT && at <= RIGHT) path += kind + at.toFixed(2) + ' ' + y + rest;
        }
        one.path.setAttribute('d', path || 'M0 0');
      }
      for (const {box, x, w} of this.boxes) {
        const left = cut(this.moved(x)), right = cut(this.moved(x + w));
        box.setAttribute('x', left); box.setAttribute('width', Math.max(0, right - left));
      }
      for (const {word, x} of this.words) {
        const at = this.moved(x);
        word.setAttribute('x', at);
        word.setAttribute('visibility', at >= LEFT && at <= RIGHT ? 'visible' : 'hidden');
      }
      this.axis.replaceChildren(...(whole ? this.axisHtml : this.ticks()));
    }
    ticks() {
      const least = (this.to - this.from) / 12, power = 10 ** Math.floor(Math.log10(least));
      const long = this.end >= 180 && least > 0.5;
      const step = long ? [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200].find(s => s >= least) || 86400 * Math.ceil(least / 86400)
        : [1, 2, 5, 10].map(s => s * power).find(s => s >= least);
      const made = [];
      for (let i = Math.ceil(this.from / step); i * step <= this.to; i++) {
        const x = this.place(i * step).toFixed(1), bottom = this.height - 26;
        const word = make('text', {class: 'tick', x, y: bottom + 17, 'text-anchor': 'middle'});
        word.textContent = long ? clock(i * step) : label(i * step, step);
        made.push(make('line', {class: 'grid', x1: x, x2: x, y1: 12, y2: bottom}), word);
      }
      return made;
    }
    point(time) {
      const inside = time >= this.from && time <= this.to, x = this.place(time).toFixed(2);
      this.cursor.setAttribute('visibility', inside ? 'visible' : 'hidden');
      this.cursor.setAttribute('x1', x); this.cursor.setAttribute('x2', x);
    }
    nearest(x, y) {
      let best = null, least = 900;
      for (const one of this.paths) {
        if (!one.frames) continue;
        for (let i = 0; i < one.parts.length; i++) {
          const dx = this.moved(one.parts[i][1]) - x, dy = one.parts[i][2] - y, far = dx * dx + dy * dy;
          if (far < least) { least = far; best = {time: this.start + (one.parts[i][1] - LEFT) / WIDE * (this.end - this.start), frame: one.frames[i], what: one.what}; }
        }
      }
      for (const {box, x: left, w} of this.boxes) {
        const from = this.moved(left), to = this.moved(left + w), top = +box.getAttribute('y');
        if (!best && box.dataset.w && x >= from && x <= to && y >= top && y <= top + +box.getAttribute('height'))
          best = {time: this.start + (left - LEFT) / WIDE * (this.end - this.start), frame: box.dataset.f, what: box.dataset.w};
      }
      return best;
    }
  }
  const ready = new Map();
  const prepare = tools => {
    if (ready.has(tools)) return ready.get(tools);
    const figures = all(tools.parentNode, 'figure');
    const plots = figures.map(figure => ({plot: new Plot(figure.querySelector('svg.plot')), group: figure.dataset.group}));
    const main = plots.filter(one => one.group !== 'seq').map(one => one.plot);
    const group = one => one.group === 'seq' ? [one.plot] : main;
    const read = tools.querySelector('.read');
    const zoom = (set, from, to) => { for (const plot of set) plot.show(from, to); };
    for (const one of plots) {
      const {plot} = one, svg = plot.svg;
      let began = null, brush = null;
      const where = event => {
        const box = svg.getBoundingClientRect();
        return {x: (event.clientX - box.left) / box.width * 1200, y: (event.clientY - box.top) / box.height * plot.height};
      };
      svg.addEventListener('pointermove', event => {
        const {x, y} = where(event), time = plot.time(Math.min(RIGHT, Math.max(LEFT, x)));
        for (const other of plots) other.plot.point(time);
        const found = plot.nearest(x, y);
        read.textContent = found ? found.time.toFixed(3) + ' s' + (found.frame ? ' · #' + found.frame : '') + ' · ' + found.what : time.toFixed(3) + ' s';
        if (brush) { brush.setAttribute('x', Math.min(began, x)); brush.setAttribute('width', Math.abs(x - began)); }
      });
      svg.addEventListener('pointerdown', event => {
        if (event.button || event.pointerType === 'touch') return;
        began = where(event).x;
        brush = make('rect', {class: 'brush', x: began, width: 0, y: 0, height: plot.height - 26});
        svg.append(brush); event.preventDefault();
      });
      addEventListener('pointerup', event => {
        if (!brush) return;
        const ends = [plot.time(began), plot.time(where(event).x)].sort((a, b) => a - b);
        const wide = +brush.getAttribute('width') > 8;
        brush.remove(); brush = null;
        if (wide) zoom(group(one), ...ends);
      });
      svg.addEventListener('dblclick', () => zoom(group(one), -Infinity, Infinity));
      svg.addEventListener('pointerleave', () => { for (const other of plots) other.plot.cursor.setAttribute('visibility', 'hidden'); });
    }
    const set = main.length ? main : plots.map(one => one.plot);
    const work = what => {
      const one = set[0], width = one.to - one.from, middle = (one.from + one.to) / 2;
      if (what === 'all') return zoom(set, -Infinity, Infinity);
      if (what === 'in' || what === 'out') {
        const half = width * (what === 'in' ? .25 : 1);
        return zoom(set, middle - half, middle + half);
      }
      const step = Math.max(one.start - one.from, Math.min(one.end - one.to, width / 2 * (what === 'left' ? -1 : 1)));
      zoom(set, one.from + step, one.to + step);
    };
    ready.set(tools, work);
    return work;
  };
  for (const tools of all(document, '.zoomtools')) {
    tools.hidden = false;
    for (const button of all(tools, 'button')) button.onclick = () => prepare(tools)(button.dataset.zoom);
    tools.parentNode.addEventListener('pointerover', () => prepare(tools), {once: true});
  }

  // -- folded parts: a link opens what it leads to, and print opens all --------------------------
  const open = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest('details');
    if (folded && !folded.open) { folded.open = true; target.scrollIntoView(); }
  };
  addEventListener('hashchange', open);
  open();
  let folded = [];
  addEventListener('beforeprint', () => { folded = all(document, 'details:not([open])'); for (const one of folded) one.open = true; });
  addEventListener('afterprint', () => { for (const one of folded) one.open = false; });
})();
