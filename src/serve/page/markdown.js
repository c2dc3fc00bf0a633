// Turns markdown into nodes of the document. A model's text is only ever the value of text nodes,
// nothing here parses markup, and links lead to http, https and mailto only. The time is linear in
// the text but for a bounded depth.
const markdown = (() => {
  const kMostDepth = 8, kMostFormula = 50;  // the first counts levels, the second lines

  const element = (name, ...children) => {
    const node = document.createElement(name);
    node.append(...children);
    return node;
  };

  const safeLink = (address) => {
    if (!/^(https?:\/\/|mailto:)[^\s]+$/i.test(address)) return null;
    try {
      const url = new URL(address);
      return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
    } catch {
      return null;
    }
  };

  const link = (address, label) => {
    const node = element('a', label);
    node.href = address;
    node.target = '_blank';
    node.rel = 'noopener noreferrer nofollow';
    node.title = address;
    return node;
  };

  // These are the spans within a paragraph.
  const kMarks = {'**': 'strong', '__': 'strong', '~~': 'del', '*': 'em', '_': 'em'};
  const kFormulas = {'\\(': '\\)', '\\[': '\\]', '$$': '$$'};  // formulas begin and end with these
  const isWord = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);

  // Returns where the span that begins at `from` with `mark` ends, or -1 if it does not end.
  const closing = (text, mark, from) => {
    for (let at = from; (at = text.indexOf(mark, at)) >= 0; ++at) {
      if (mark.length === 1 && text[at + 1] === mark) {
        ++at;
        continue;
      }
      while (mark.length === 2 && text[at + 2] === mark[0]) ++at;
      const good = at > from && !/\s/.test(text[at - 1]);
      if (good && !(mark[0] === '_' && isWord(text[at + mark.length]))) return at;
    }
    return -1;
  };

  const inline = (text, depth = 0) => {
    const out = document.createDocumentFragment();
    const hopeless = new Set();  // these marks have no end in the rest of the text
    let plain = '', at = 0, middle = -1;  // `middle` is that of the next link
    const flush = () => {
      if (plain) out.append(plain);
      plain = '';
    };
    const put = (node, end) => {
      flush();
      out.append(node);
      at = end;
      return true;
    };
    const code = () => {
      const ticks = /`+/y;
      ticks.lastIndex = at;
      const run = ticks.exec(text)[0], from = at + run.length;
      if (!hopeless.has(run)) {
        for (let end = from; (end = text.indexOf(run, end)) >= 0; ) {
          let after = end + run.length;
          if (text[after] !== '`') {
            const inner = text.slice(from, end);
            const padded = inner.startsWith(' ') && inner.endsWith(' ') && !isBlank(inner);
            return put(element('code', padded ? inner.slice(1, -1) : inner), after);
          }
          while (text[after] === '`') ++after;
          end = after;
        }
        hopeless.add(run);
      }
      plain += run;
      at = from;
      return true;
    };
    const span = () => {
      if (depth >= kMostDepth) return false;
      const two = text.slice(at, at + 2), mark = two in kMarks ? two : text[at];
      const from = at + mark.length;
      if (!(mark in kMarks) || hopeless.has(mark) || from >= text.length) return false;
      if (/\s/.test(text[from]) || (mark[0] === '_' && isWord(text[at - 1]))) return false;
      const end = closing(text, mark, from);
      if (end < 0) {
        hopeless.add(mark);
        return false;
      }
      const inner = inline(text.slice(from, end), depth + 1);
      return put(element(kMarks[mark], inner), end + mark.length);
    };
    const bracket = () => {
      if (middle < at) middle = text.indexOf('](', at);
      if (middle < 0) middle = Infinity;
      if (depth >= kMostDepth || middle - at > 1000) return false;
      const label = text.slice(at + 1, middle), rest = text.slice(middle + 2, middle + 2002);
      const length = rest.indexOf(')');
      if (length < 0 || label.includes('[')) return false;
      const address = safeLink(rest.slice(0, length).trim());
      return address !== null &&
          put(link(address, inline(label, kMostDepth)), middle + 3 + length);
    };
    const address = () => {
      if (isWord(text[at - 1]) || depth >= kMostDepth) return false;
      const pattern = /https?:\/\/[^\s<>"'`*]{1,2000}/y;
      pattern.lastIndex = at;
      const found = pattern.exec(text)?.[0].replace(/[.,;:!?)\]]{1,9}$/, '');
      const target = found && safeLink(found);
      return Boolean(target) && put(link(target, found), at + found.length);
    };
    // Reads \(x\), \[x\] and $$x$$.
    const formula = () => {
      const mark = text.slice(at, at + 2), end = kFormulas[mark];
      if (!end || hopeless.has(mark)) return false;
      const from = at + 2, until = text.indexOf(end, from);
      if (until < 0) {
        hopeless.add(mark);
        return false;
      }
      const source = text.slice(from, until), written = text.slice(at, until + 2);
      return Boolean(source.trim()) &&
          put(math.render(source, mark !== '\\(', written), until + 2);
    };
    const readers = {'\\': formula, '$': formula, '`': code, '*': span, '_': span, '~': span,
                     '[': bracket, 'h': address};
    while (at < text.length) {
      const c = text[at];
      if (readers[c]?.()) continue;
      if (c === '\\' && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? '')) {
        plain += text[at + 1];
        at += 2;
      } else if (c === '\n') {
        put(element('br'), at + 1);
      } else {
        plain += c;
        ++at;
      }
    }
    flush();
    return out;
  };

  // The rest is about blocks. Each reader takes lines from `at` on and returns where the block
  // ends.
  const isBlank = (line) => line.trim() === '';
  const fenceOf = (line) => {
    const found = /^ {0,3}(`{3,}|~{3,})/.exec(line), info = line.slice(found?.[0].length);
    return found && !info.includes('`') && {mark: found[1], language: info.trim().split(' ')[0]};
  };
  const headingOf = (line) => /^ {0,3}(#{1,6})\s/.exec(line);
  const isRule = (line) => /^[-*_ ]{3,}$/.test(line) &&
      /^(-{3,}|\*{3,}|_{3,})$/.test(line.replaceAll(' ', ''));
  const itemOf = (line) => /^( *)([-*+]|\d{1,9}[.)])( +|$)/.exec(line);
  // Items of one list have the same mark, which is -, *, +, . or ).
  const kindOf = (item) => item[2].at(-1);
  // A | behind a backslash stands in a cell.
  const cellsOf = (line) =>
      line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '').split(/(?<!\\)\|/)
          .map((cell) => cell.trim().replaceAll('\\|', '|'));
  // Returns the line behind a formula that begins at `at` and has its lines to itself, or 0 if
  // there is none.
  const formulaEnd = (lines, at) => {
    const [, mark] = /^ {0,3}(\\\[|\$\$)/.exec(lines[at]) ?? [], last = at + kMostFormula;
    if (!mark) return 0;
    for (let end = at; end < Math.min(lines.length, last) && !isBlank(lines[end]); ++end) {
      const line = end === at ? lines[at].trim().slice(2) : lines[end].trim();
      const found = line.indexOf(kFormulas[mark]);
      if (found >= 0) return found === line.length - 2 ? end + 1 : 0;
    }
    return 0;
  };
  const isTable = (lines, at) => lines[at].includes('|') && at + 1 < lines.length &&
      lines[at + 1].includes('-') && cellsOf(lines[at + 1]).every((c) => /^:?-+:?$/.test(c)) &&
      cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;
  const beginsBlock = (lines, at) => fenceOf(lines[at]) || headingOf(lines[at]) ||
      isRule(lines[at]) || /^ {0,3}>/.test(lines[at]) || itemOf(lines[at]) ||
      formulaEnd(lines, at) || isTable(lines, at);

  const endOf = (lines, at) => {
    const line = lines[at], fence = fenceOf(line);
    let end = at + 1;
    if (fence) {
      const closes = (l) =>
          l.trim().startsWith(fence.mark) && !l.trim().replaceAll(fence.mark[0], '');
      while (end < lines.length && !closes(lines[end])) ++end;
      return Math.min(end + 1, lines.length);
    }
    if (headingOf(line) || isRule(line)) return end;
    if (/^ {0,3}>/.test(line)) {
      while (end < lines.length && /^ {0,3}>/.test(lines[end])) ++end;
      return end;
    }
    const item = itemOf(line);
    if (item) {
      const inside = (l) => {
        const next = itemOf(l);
        return /^ +/.exec(l)?.[0].length > item[1].length ||
            (next && kindOf(next) === kindOf(item));
      };
      for (; end < lines.length; ++end) {
        if (isBlank(lines[end])) {
          if (end + 1 >= lines.length || !inside(lines[end + 1])) break;
        } else if (!inside(lines[end]) && (isBlank(lines[end - 1]) || beginsBlock(lines, end))) {
          break;
        }
      }
      return end;
    }
    const formula = formulaEnd(lines, at);
    if (formula) return formula;
    if (isTable(lines, at)) {
      while (end < lines.length && lines[end].includes('|')) ++end;
      return end;
    }
    while (end < lines.length && !isBlank(lines[end]) && !beginsBlock(lines, end)) ++end;
    return end;
  };

  // Splits the text into pieces, each of which is one block.
  const split = (text) => {
    const lines = text.replaceAll('\r\n', '\n').split('\n'), blocks = [];
    for (let at = 0; at < lines.length; ) {
      if (isBlank(lines[at])) {
        ++at;
        continue;
      }
      const end = endOf(lines, at);
      blocks.push(lines.slice(at, end).join('\n'));
      at = end;
    }
    return blocks;
  };

  const codeBlock = (language, text) => {
    const copy = element('button', 'Copy');
    copy.type = 'button';
    copy.addEventListener('click', () => copyText(text, copy));
    const bar = element('div', element('span', language || 'code'), copy);
    bar.className = 'bar';
    const box = element('div', bar, element('pre', element('code', text)));
    box.className = 'code';
    return box;
  };

  const listBlock = (lines, depth) => {
    const first = itemOf(lines[0]), ordered = /\d/.test(first[2]);
    const list = element(ordered ? 'ol' : 'ul');
    if (ordered) list.start = parseInt(first[2], 10);
    for (let at = 0; at < lines.length; ) {
      const item = itemOf(lines[at]), width = item[0].length;
      const content = [lines[at].slice(width)];
      for (++at; at < lines.length; ++at) {
        const next = itemOf(lines[at]);
        if (next && next[1].length <= first[1].length) break;
        const indent = /^ */.exec(lines[at])[0].length;
        content.push(lines[at].slice(Math.min(indent, width)));
      }
      list.append(element('li', ...itemContent(content.join('\n'), depth)));
    }
    return list;
  };

  // An item of one paragraph is no paragraph of its own.
  const itemContent = (text, depth) => {
    const nodes = blocks(text, depth + 1);
    return nodes[0]?.nodeName === 'P' ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes;
  };

  const tableBlock = (lines) => {
    const head = cellsOf(lines[0]);
    const row = (cells, kind) =>
        element('tr', ...head.map((_, i) => element(kind, inline(cells[i] ?? ''))));
    const body = lines.slice(2).map((line) => row(cellsOf(line), 'td'));
    return element('table', element('thead', row(head, 'th')), element('tbody', ...body));
  };

  const block = (text, depth) => {
    const lines = text.split('\n'), fence = fenceOf(lines[0]), heading = headingOf(lines[0]);
    if (fence) {
      const last = lines.length > 1 && lines.at(-1).trim().startsWith(fence.mark);
      return codeBlock(fence.language, lines.slice(1, last ? -1 : undefined).join('\n'));
    }
    if (heading) {
      const title = text.slice(heading[0].length).trim().replace(/ #{1,6}$/, '');
      return element('h' + heading[1].length, inline(title));
    }
    if (isRule(lines[0])) return element('hr');
    if (depth < kMostDepth) {
      if (/^ {0,3}>/.test(lines[0])) {
        const inner = lines.map((l) => l.replace(/^ {0,3}> ?/, '')).join('\n');
        return element('blockquote', ...blocks(inner, depth + 1));
      }
      if (itemOf(lines[0])) return listBlock(lines, depth);
    }
    const table = !formulaEnd(lines, 0) && isTable(lines, 0);
    return table ? tableBlock(lines) : element('p', inline(text.trim()));
  };

  const blocks = (text, depth) => split(text).map((piece) => block(piece, depth));

  // Shows a text that grows: blocks that did not change keep their nodes.
  class View {
    constructor(node) {
      this.node = node;
      this.pieces = [];
    }
    show(text) {
      const pieces = split(text);
      let same = 0;
      while (same < pieces.length && pieces[same] === this.pieces[same]) ++same;
      while (this.node.childNodes.length > same) this.node.lastChild.remove();
      for (const piece of pieces.slice(same)) this.node.append(block(piece, 0));
      this.pieces = pieces;
    }
  }

  return {View, element};
})();
