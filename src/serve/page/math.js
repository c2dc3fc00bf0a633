// Turns formulas of TeX into MathML, which browsers draw. A formula with something that is not
// known here is shown as it was written.
const math = (() => {
  const kMostDepth = 24, kMostLength = 5000;

  const make = (name, ...children) => {
    const node = document.createElementNS('http://www.w3.org/1998/Math/MathML', name);
    node.append(...children);
    return node;
  };
  const table = (text) => new Map(text.trim().split(/\s+/).map((pair) => pair.split('=')));
  const kLetters = table(`alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ
    vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν xi=ξ pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ
    varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ
    Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω infty=∞ partial=∂ nabla=∇ hbar=ℏ ell=ℓ Re=ℜ
    Im=ℑ emptyset=∅ varnothing=∅ aleph=ℵ dots=… ldots=… cdots=⋯ vdots=⋮ ddots=⋱ angle=∠ circ=∘
    degree=° top=⊤ bot=⊥ prime=′`);
  const kSigns = table(`times=× cdot=⋅ div=÷ pm=± mp=∓ ast=∗ star=⋆ leq=≤ le=≤ geq=≥ ge=≥ neq=≠ ne=≠
    approx=≈ equiv=≡ sim=∼ simeq=≃ cong=≅ propto=∝ ll=≪ gg=≫ in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃
    subseteq=⊆ supseteq=⊇ cup=∪ cap=∩ setminus=∖ land=∧ wedge=∧ lor=∨ vee=∨ lnot=¬ neg=¬ forall=∀
    exists=∃ to=→ rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐
    Leftrightarrow=⇔ implies=⟹ iff=⟺ mapsto=↦ longrightarrow=⟶ uparrow=↑ downarrow=↓ mid=∣
    parallel=∥ perp=⊥ oplus=⊕ otimes=⊗ odot=⊙ bullet=∙ therefore=∴ because=∵ colon=: lt=< gt=>
    lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ langle=⟨ rangle=⟩ lvert=| rvert=| vert=| lVert=‖ rVert=‖
    Vert=‖ lbrace={ rbrace=} lbrack=[ rbrack=] backslash=\\`);
  const kLarge = table('sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ int=∫ iint=∬ iiint=∭ oint=∮');
  const kAbove = table('hat=^ widehat=^ bar=¯ overline=¯ tilde=~ widetilde=~ vec=→ dot=˙ ddot=¨');
  const kNames = new Set(`sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp
    lim limsup liminf max min sup inf arg det dim gcd ker deg Pr mod`.trim().split(/\s+/));
  const kUnder = new Set('lim limsup liminf max min sup inf'.split(' '));
  const kSpaces = new Map([[',', '.17em'], [':', '.22em'], [';', '.28em'], ['!', '0'],
                           [' ', '.3em'], ['quad', '1em'], ['qquad', '2em']]);
  const kWords = new Set(`text textbf textit textrm mathrm mathsf mathtt mathit operatorname
    mbox`.split(/\s+/));
  const kFences = {matrix: '  ', pmatrix: '()', bmatrix: '[]', vmatrix: '||', Bmatrix: '{}',
                   cases: '{ ', aligned: '  ', align: '  ', 'align*': '  ', array: '  ',
                   split: '  '};
  const kScripts = {'_': 'msub', '^': 'msup', '_^': 'msubsup'};
  const kLimits = {'_': 'munder', '^': 'mover', '_^': 'munderover'};
  // Unicode has the letters A to Z and a to z of these styles from here on, but for some that stand
  // elsewhere.
  const kStyles = new Map([['mathbb', 0x1D538], ['mathcal', 0x1D49C], ['mathfrak', 0x1D504],
                           ['mathbf', 0x1D400], ['boldsymbol', 0x1D400]]);
  const kElsewhere = table(`mathbbC=ℂ mathbbH=ℍ mathbbN=ℕ mathbbP=ℙ mathbbQ=ℚ mathbbR=ℝ mathbbZ=ℤ
    mathcalB=ℬ mathcalE=ℰ mathcalF=ℱ mathcalH=ℋ mathcalI=ℐ mathcalL=ℒ mathcalM=ℳ mathcalR=ℛ
    mathcale=ℯ mathcalg=ℊ mathcalo=ℴ mathfrakC=ℭ mathfrakH=ℌ mathfrakI=ℑ mathfrakR=ℜ mathfrakZ=ℨ`);
  const styled = (letter, style) => {
    const place = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'.indexOf(letter);
    return kElsewhere.get(style + letter) ??
        (place < 0 ? letter : String.fromCodePoint(kStyles.get(style) + place));
  };

  class Reader {
    constructor(source, display) {
      this.tokens = source.match(/\\[a-zA-Z]+\*?|\\[^]|\d+(?:\.\d+)?|\s+|[^]/gu) ?? [];
      this.at = 0;
      this.depth = 0;
      this.display = display;
    }

    refuse() {
      throw new SyntaxError();
    }
    skipSpace() {
      while (/^\s/.test(this.tokens[this.at] ?? '')) ++this.at;
    }
    peek() {
      this.skipSpace();
      return this.tokens[this.at];
    }
    take(wanted) {
      const token = this.peek();
      if (token === undefined || (wanted && token !== wanted)) this.refuse();
      ++this.at;
      return token;
    }

    // Reads the nodes up to one of `ends`, which is not taken. An undefined end is that of the
    // text.
    row(...ends) {
      if (++this.depth > kMostDepth) this.refuse();
      const nodes = [];
      while (!ends.includes(this.peek())) {
        if (this.peek() === undefined) this.refuse();
        nodes.push(this.withScripts());
      }
      --this.depth;
      return nodes.length === 1 ? nodes[0] : make('mrow', ...nodes);
    }

    // Reads {a b}, or one thing.
    argument() {
      if (this.peek() !== '{') return this.atom();
      this.take('{');
      const inner = this.row('}');
      this.take('}');
      return inner;
    }

    // Reads the letters between braces as they stand, or one letter.
    words() {
      if (this.peek() !== '{') return this.take();
      this.take('{');
      let text = '', open = 1;
      for (; this.at < this.tokens.length; ++this.at) {
        const token = this.tokens[this.at];
        open += token === '{' ? 1 : token === '}' ? -1 : 0;
        if (!open) {
          ++this.at;
          return text;
        }
        text += token.length === 2 && token[0] === '\\' ? token[1] : token;
      }
      return this.refuse();
    }

    withScripts() {
      const first = this.peek(), base = '_^'.includes(first) ? make('mrow') : this.atom();
      const name = first.slice(1), limits = this.display &&
          (kUnder.has(name) || (kLarge.has(name) && !name.endsWith('int')));
      const parts = {};
      for (;;) {
        const next = this.peek();
        if (next === "'") {
          let primes = '';
          for (; this.peek() === "'"; ++this.at) primes += '′';
          if (parts['^']) this.refuse();
          parts['^'] = make('mo', primes);
        } else if (next === '_' || next === '^') {
          this.take();
          const part = this.argument();
          if (parts[next] && next === '_') this.refuse();
          parts[next] = parts[next] ? make('mrow', parts[next], part) : part;
        } else if (next === '\\limits' || next === '\\nolimits') {
          this.take();
        } else {
          break;
        }
      }
      const kinds = ['_', '^'].filter((kind) => parts[kind]), names = limits ? kLimits : kScripts;
      return kinds.length ? make(names[kinds.join('')], base, ...kinds.map((k) => parts[k])) : base;
    }

    atom() {
      if (++this.depth > kMostDepth) this.refuse();
      const node = this.readAtom(this.take());
      --this.depth;
      return node;
    }

    readAtom(token) {
      if (token === '{') {
        --this.at;
        return this.argument();
      }
      if (token[0] === '\\') return this.command(token.slice(1));
      if (/^\d/.test(token)) return make('mn', token);
      if (/^\p{L}/u.test(token)) return make('mi', token);
      if ('}_^&#$%~'.includes(token)) return token === '~' ? this.space('.3em') : this.refuse();
      return make('mo', token === '-' ? '−' : token);
    }

    space(width) {
      const node = make('mspace');
      node.setAttribute('width', width);
      return node;
    }
    fixed(sign) {  // this is a bracket that does not grow
      const node = make('mo', sign);
      node.setAttribute('stretchy', 'false');
      return node;
    }

    command(name) {
      if (kLetters.has(name)) return make('mi', kLetters.get(name));
      if (kSigns.has(name)) return this.fixed(kSigns.get(name));
      if (kLarge.has(name)) return make('mo', kLarge.get(name));
      if (kNames.has(name)) return make('mi', name);
      if (kSpaces.has(name)) return this.space(kSpaces.get(name));
      if ('{}%$#&_|'.includes(name)) return this.fixed(name === '|' ? '‖' : name);
      if (kWords.has(name)) return make('mtext', this.words());
      if (kStyles.has(name))
        return make('mi', [...this.words()].map((letter) => styled(letter, name)).join(''));
      if (kAbove.has(name)) return make('mover', this.argument(), make('mo', kAbove.get(name)));
      switch (name) {
        case 'frac': case 'dfrac': case 'tfrac': case 'cfrac':
          return make('mfrac', this.argument(), this.argument());
        case 'binom': {
          const parts = make('mfrac', this.argument(), this.argument());
          parts.setAttribute('linethickness', '0');
          return make('mrow', make('mo', '('), parts, make('mo', ')'));
        }
        case 'sqrt':
          return this.root();
        case 'underline':
          return make('munder', this.argument(), make('mo', '_'));
        case 'boxed':
          return this.argument();
        case 'displaystyle': case 'textstyle':
          return make('mrow');
        case 'left':
          return this.fenced();
        case 'big': case 'Big': case 'bigl': case 'bigr': case 'Bigl': case 'Bigr':
          return make('mo', this.fence());
        case 'begin':
          return this.environment();
        default:
          return this.refuse();
      }
    }

    root() {
      if (this.peek() !== '[') return make('msqrt', this.argument());
      this.take('[');
      const degree = this.row(']');
      this.take(']');
      return make('mroot', this.argument(), degree);
    }

    fence() {
      const token = this.take();
      if (token[0] !== '\\') return token === '.' ? '' : token;
      const name = token.slice(1);
      return '{}'.includes(name) ? name : name === '|' ? '‖' : kSigns.get(name) ?? this.refuse();
    }

    fenced() {
      const open = make('mo', this.fence()), inner = this.row('\\right');
      this.take('\\right');
      return make('mrow', open, inner, make('mo', this.fence()));
    }

    environment() {
      const name = this.words(), rows = [[]];
      if (!Object.hasOwn(kFences, name)) this.refuse();
      if (name === 'array') this.words();
      for (;;) {
        rows.at(-1).push(make('mtd', this.row('&', '\\\\', '\\end')));
        const end = this.take();
        if (end === '\\\\') rows.push([]);
        if (end === '\\end') break;
      }
      if (this.words() !== name) this.refuse();
      const grid = make('mtable', ...rows.map((cells) => make('mtr', ...cells)));
      const [open, close] = [...kFences[name]].map((sign) => make('mo', sign.trim()));
      return make('mrow', open, grid, close);
    }
  }

  // `written` is the formula as it stands in the text, which is the source between its marks.
  const render = (source, display, written) => {
    try {
      if (source.length > kMostLength) throw new SyntaxError();
      const reader = new Reader(source, display);
      const node = make('math', reader.row(undefined));
      if (display) node.setAttribute('display', 'block');
      return node;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      const node = document.createElement('code');
      node.textContent = written;
      return node;
    }
  };

  return {render};
})();
