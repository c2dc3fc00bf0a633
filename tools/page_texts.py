"""Holds texts of a model, and how tools/check_page.py expects the page to show them."""
FORMULAS = set("math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover "
               "munderover mtable mtr mtd".split())
ALLOWED = set("A BLOCKQUOTE BR BUTTON CODE DEL DIV EM H1 H2 H3 H4 H5 H6 HR LI OL P PRE SPAN STRONG "
              "TABLE TBODY TD TH THEAD TR UL".split())
HOSTILE = [
    "<script>pwned=1</script>", "<img src=x onerror='pwned=1'>",
    "</script><script>pwned=1</script>", "<svg onload=pwned=1>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<a href='javascript:pwned=1'>a</a>", "[a](javascript:pwned=1)", "[a](JaVaScRiPt:pwned=1)",
    "[a](data:text/html,<script>pwned=1</script>)", "[a](vbscript:pwned)",
    "[a]( javascript:pwned=1)",
    "[a](java\nscript:pwned=1)", "![a](HERE/stolen?image)", "<img src='HERE/stolen?tag'>",
    "<link rel=stylesheet href='HERE/stolen?style'>", "<style>@import 'HERE/stolen?import'</style>",
    "<meta http-equiv=refresh content='0;url=HERE/stolen?refresh'>", "<base href='HERE/stolen/'>",
    "<form action='HERE/stolen?form'><input autofocus onfocus='pwned=1'></form>",
    "`<script>pwned=1</script>`", "```html\n<script>pwned=1</script>\n```",
    "```<img/src=x/onerror=pwned=1>\ntext\n```", "&lt;script&gt;pwned=1&lt;/script&gt;",
    "| <img src=x onerror=pwned=1> | b |\n|---|---|\n| <script>pwned=1</script> | c |",
    "# <b onmouseover=pwned=1>title</b>", "> <details ontoggle=pwned=1 open>quote</details>",
    "- <video><source onerror=pwned=1></video>", "[<img src=x onerror=pwned=1>](https://a.example)",
    "[a](https://a.example/\"onmouseover=\"pwned=1)", "${pwned=1} {{pwned=1}} <%= pwned=1 %>",
    "__proto__ constructor toString valueOf hasOwnProperty",
    "\\(\\text{<img src=x onerror=pwned=1>}\\)", "\\[\\href{javascript:pwned=1}{a}\\]",
    "$$\\begin{constructor}a\\end{constructor}$$",
]
LONG = ["[" * 50000, "*a " * 50000, "`" * 50000 + "a", "> " * 20000 + "a", "**" * 50000,
        "[a](" * 20000, "_a" * 50000, "- " * 20000, "|" * 50000 + "\n" + "|-" * 25000,
        "``` " + "x" * 50000 + "`", "# " + " " * 50000 + "x",
        "\n".join(" " * i + "- a" for i in range(400)), "http://" * 20000,
        "\\(" * 50000, "\\[\n" * 30000, "\\(" + "{" * 50000 + "\\)", "$$" * 50000,
        "\\(" + "\\frac" * 900 + "\\)", "\\(" + "x^" * 2000 + "\\)", "|" + "\\|" * 50000 + "\n|-|"]
MARKDOWN = """# Title
Some *words* and **more**, `code <b>`, ~~none~~ and [a link](https://a.example/b).
A line of its own, 2*3*4 and snake_case_word.

- one
- two
  1. inner
  2. list

> quoted

| a | b |
|---|---|
| 1 | 2 |

```python
if 1 < 2:
    print("*no*")
```
---
https://b.example/c."""
RENDERED = (
    "<h1>Title</h1>"
    "<p>Some <em>words</em> and <strong>more</strong>, <code>code &lt;b&gt;</code>, "
    "<del>none</del> and LINK(https://a.example/b)a link</a>.<br>"
    "A line of its own, 2<em>3</em>4 and snake_case_word.</p>"
    "<ul><li>one</li><li>two<ol start=\"1\"><li>inner</li><li>list</li></ol></li></ul>"
    "<blockquote><p>quoted</p></blockquote>"
    "<table><thead><tr><th>a</th><th>b</th></tr></thead>"
    "<tbody><tr><td>1</td><td>2</td></tr></tbody></table>"
    "<div class=\"code\"><div class=\"bar\"><span>python</span>"
    "<button type=\"button\">Copy</button></div>"
    "<pre><code>if 1 &lt; 2:\n    print(\"*no*\")</code></pre></div><hr>"
    "<p>LINK(https://b.example/c)https://b.example/c</a>.</p>")

# Each piece is common markdown, with the expected markup.
PIECES = {
    "a list behind one of another kind": (
        "- a\n- b\n1. c\n2. d\n\n* e\n+ f\n3) g",
        "<ul><li>a</li><li>b</li></ul><ol start=\"1\"><li>c</li><li>d</li></ol>"
        "<ul><li>e</li></ul><ul><li>f</li></ul><ol start=\"3\"><li>g</li></ol>"),
    "a list of another kind within an item": (
        "1. a\n   - b\n   - c\n   1. d\n2. e",
        "<ol start=\"1\"><li>a<ul><li>b</li><li>c</li></ul><ol start=\"1\"><li>d</li></ol></li>"
        "<li>e</li></ol>"),
    "a bar in a cell": (
        "| a \\| b | `c \\| d` |\n|---|---|\n| 1 \\|\\| 2 | 3 \\|",
        "<table><thead><tr><th>a | b</th><th><code>c | d</code></th></tr></thead>"
        "<tbody><tr><td>1 || 2</td><td>3 |</td></tr></tbody></table>"),
    "a formula in a line": (
        "If \\(x_1^2 \\le \\frac{a*b}{\\pi}\\) then `\\(y\\)` and \\*.",
        "<p>If <math><mrow><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>"
        "<mo stretchy=\"false\">\u2264</mo><mfrac><mrow><mi>a</mi><mo>*</mo><mi>b</mi></mrow>"
        "<mi>\u03c0</mi></mfrac></mrow></math> then <code>\\(y\\)</code> and *.</p>"),
    "a formula of its own": (
        "So\n\\[\n\\sum_{i=1}^n i\n- 1\n\\]\n$$\\sqrt[3]{x}$$",
        "<p>So</p><p><math display=\"block\"><mrow><munderover><mo>\u2211</mo><mrow><mi>i</mi>"
        "<mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi><mo>\u2212</mo><mn>1</mn>"
        "</mrow></math></p>"
        "<p><math display=\"block\"><mroot><mi>x</mi><mn>3</mn></mroot></math></p>"),
    "a matrix": (
        "\\[\\left( \\begin{matrix} a & b \\\\ c & \\text{d e} \\end{matrix} \\right]\\]",
        "<p><math display=\"block\"><mrow><mo>(</mo><mrow><mo></mo><mtable><mtr><mtd>"
        "<mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr><mtr><mtd><mi>c</mi></mtd><mtd>"
        "<mtext>d e</mtext></mtd></mtr></mtable><mo></mo></mrow><mo>]</mo></mrow></math></p>"),
    "letters of other styles": (
        "\\(\\mathbb{R} \\mathbf{xB} \\mathcal{L}\\)",
        "<p><math><mrow><mi>\u211d</mi><mi>\U0001d431\U0001d401</mi><mi>\u2112</mi></mrow></math>"
        "</p>"),
    "a formula that is not known": (
        "\\(\\unknown{x}\\) and \\(a", "<p><code>\\(\\unknown{x}\\)</code> and (a</p>"),
}
