"""Makes Markdown tables of README.md and docs/ from the figures in docs/*.json."""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs/results.md", ROOT / "docs/calibration.md",
         ROOT / "docs/guide/scale.md"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def ratio(value, anchor):
    return f"{anchor:.4g} ({value / anchor:.2f}x)" if anchor else "-"


def number(value, digits=4):
    return "-" if value is None else f"{value:.{digits}g}"


def anchor_of(anchors, row):
    formats = anchors["formats"]
    same = (row["model"], row["text"], row["chunks"]) == (
        formats["model"], formats["text"], formats["chunks"])
    return formats["rows"].get(row["type"], {}) if same else {}


def perplexity(results, anchors):
    rows = []
    for row in results.get("perplexity", []):
        for known in anchors["perplexity"]:
            expected = known.get(f"chunks_{row['chunks']}")
            if known["model"] == row["model"] and known["text"] == row["text"] and expected:
                rows.append([row["model"], row["text"], row["chunks"], f"{row['ppl']:.4f}",
                             f"{expected:.4f}", f"{100 * (row['ppl'] / expected - 1):+.3f} %"])
    return table(["model", "text", "windows", "perplexity", "transformers, float32",
                  "difference"], rows)


def quality(results, anchors):
    """Makes one row per model and format: int8 activations as run, and the exact path beside
    them."""
    exact = {(r["model"], r["type"]): r for r in results["quality"] if r["activations"] == "f32"}
    rows = []
    shown = [r for r in results["quality"] if r["activations"] == "auto"]
    for row in sorted(shown, key=lambda r: (r["model"], r["kld"])):
        anchor = anchor_of(anchors, row)
        best = exact.get((row["model"], row["type"]))
        kld = best["kld"] if best else row["kld"]
        added = "-" if best is None else f"{row['kld'] - best['kld']:+.1e}"
        if best and best["kld"] > 0:
            added += f" ({100 * (row['kld'] / best['kld'] - 1):+.1f} %)"
        earlier = "" if "bits" in row else " *"
        rows.append([row["model"], row["type"] + earlier, f"{row['bpw']:.4f}", f"{row['ppl']:.3f}",
                     number(row["kld"]), number(row["p99"]), f"{100 * row['top1']:.2f}",
                     f"{100 * row['rms_dp']:.2f}", number(best and best["kld"]), added,
                     ratio(kld, anchor.get("kld"))])
    return table(["model", "type", "bpw", "PPL", "KLD", "KLD 99 %", "top-1 %", "RMS dp %",
                  "KLD, f32 activations", "added by int8", "anchor KLD (ratio of f32 path)"], rows)


def llama_cpp(_, anchors):
    rows = [[r["type"], f"{r['bpw']:.4f}", f"{r['ppl']:.3f}", number(r["kld"]),
             f"{100 * r['top1']:.2f}"] for r in anchors["llama_cpp"]]
    return table(["llama.cpp type", "bpw", "PPL", "KLD", "top-1 %"], rows)


def stress(results, anchors):
    rows = []
    for row in results.get("stress", []):
        anchor = anchors["stress_unbalanced"].get(row["type"], {})
        other = anchor.get("kld") if row["balance"] == "off" else None
        rows.append([row["type"], row["balance"], number(row["plain_kld"]), number(row["kld"]),
                     f"{100 * (row['kld'] / row['plain_kld'] - 1):+.2f} %", number(other)])
    return table(["type", "--balance", "KLD, model as it is", "KLD, channels rescaled", "change",
                  "anchor"], rows)


def seeds(results, _):
    rows = []
    for kind in dict.fromkeys(r["type"] for r in results["seeds"]):
        klds = [r["kld"] for r in results["seeds"] if r["type"] == kind]
        mean = sum(klds) / len(klds)
        spread = (sum((k - mean) ** 2 for k in klds) / max(1, len(klds) - 1)) ** 0.5
        rows.append([kind, len(klds), number(mean), number(min(klds)), number(max(klds)),
                     f"{100 * spread / mean:.1f} %"])
    return table(["type", "seeds", "mean KLD", "least", "most", "standard deviation"], rows)


def ablation(results, _):
    rows = [[r["type"], r["what"], f"`{r['flags']}`", number(r["nmse"]), f"{r['ppl']:.3f}",
             number(r["kld"])] for r in results.get("ablation", [])]
    return table(["type", "rotation", "flags", "NMSE", "PPL", "KLD"], rows)


def speed(results, anchors):
    rows = []
    for row in results.get("speed", []):
        share = row["bandwidth_share"] if row["test"].startswith("tg") else row["int8_share"]
        unit = "bandwidth" if row["test"].startswith("tg") else "int8 peak"
        rows.append([row["model"], row["type"], f"{row['bpw']:.3f}", row["threads"], row["test"],
                     f"{row['tokens_per_s']:.2f} +- {row['stddev']:.2f}",
                     f"{row['bytes_per_token'] / 1e6:.0f}", f"{row['gb_per_s']:.1f}",
                     f"{100 * share:.0f} % of {unit}"])
    ours = table(["model", "type", "bpw", "threads", "test", "tokens/s", "MB/token", "GB/s",
                  "share"], rows)
    known = anchors["llama_cpp_speed"]
    peak = known["int8_peak_gmac_per_s"] / 1.1
    theirs = table(["llama.cpp type", "MB/token", "decode tokens/s", "share of bandwidth",
                    "prompt tokens/s", "share of int8 peak"],
                   [[r["type"], f"{r['mb_per_token']:.0f}", r["tg"], f"{100 * r['share']:.0f} %",
                     f"{r['pp512']:.0f}", f"{100 * r['pp512'] / peak:.0f} %"]
                    for r in known["rows"]])
    return (f"{ours}\n\nllama.cpp on the same shape, {known['threads']} threads, "
            f"{known['bandwidth_gb_per_s']} GB/s, {known['int8_peak_gmac_per_s']} GMAC/s:\n\n"
            f"{theirs}")


def gpu(results, anchors):
    """Makes one table per shape: a row per type, tokens of all sequences per second."""
    known = anchors["llama_cpp_gpu"]
    parts = []
    for shape in dict.fromkeys(r["shape"] for r in results["gpu"]):
        of_shape = [r for r in results["gpu"] if r["shape"] == shape]
        tests = list(dict.fromkeys(r["test"] for r in of_shape))
        decode = [t for t in tests if t.startswith("tg")]
        prompts = [t for t in tests if t.startswith("pp")]
        rows = []
        for kind in dict.fromkeys(r["type"] for r in of_shape):
            cells = {r["test"]: r for r in of_shape if r["type"] == kind}
            first = cells[decode[0]]
            rows.append([kind, f"{first['bytes_per_token'] / 1e9:.2f}"] + [
                f"{cells[t]['tokens_per_s']:.0f}" +
                (f" ({100 * cells[t]['bandwidth_share']:.0f} %)" if t == decode[0] else "")
                for t in decode] + [
                f"{cells[t]['tokens_per_s']:.0f} ({100 * cells[t]['bf16_share']:.0f} %)"
                for t in prompts])
        if shape == known["shape"]:
            rows += [["llama.cpp " + r["type"], f"{r['gb']:.2f}",
                      f"{r['tg']} ({100 * r['share']:.0f} %)"] + ["-"] * (len(decode) - 1) +
                     [f"{r['pp512']}", f"{r['pp4096']}"] for r in known["rows"]]
        heads = [f"batch {t.split('@')[1]}" if "@" in t else "decode tokens/s" for t in decode]
        parts.append(f"Shape {shape}:\n\n" + table(
            ["type", "GB read"] + heads + [f"prompt {t[2:]}" for t in prompts], rows))
    row = results["gpu"][0]
    return (f"{row['device']}, {row['bandwidth_gb_per_s']:.0f} GB/s read:\n\n" +
            "\n\n".join(parts))


def agreement(results, _):
    rows = results.get("agreement", [])
    kld = {(r["type"], r["model"], r["ctx"]): r["kld"] for r in rows}
    columns = list(dict.fromkeys((r["model"], r["ctx"]) for r in rows))
    return table(["type"] + [f"{m}, {c}" for m, c in columns], [
        [kind] + [f"{kld[kind, m, c]:.1e}" if (kind, m, c) in kld else "-" for m, c in columns]
        for kind in dict.fromkeys(r["type"] for r in rows)])


def demo(results, _):
    rows = [[r["type"], f"{r['bpw']:.3f}", f"{r['bytes'] / 2**20:.2f}", f"{r['ppl']:.3f}",
             number(r["kld"]), f"{100 * r['top1']:.2f}"] for r in results.get("demo", [])]
    return table(["type", "bits", "MiB", "perplexity", "KLD", "top-1 %"], rows)


# The comparison has these rows of other programs: the mixes that people use.
COMPARED = ("Q8_0", "Q4_K_M", "IQ4_XS", "Q3_K_M", "IQ3_XXS", "Q2_K")
# walsh reads these types and no longer writes them (docs/formats/retired.md).
RETIRED = ("tc2:L12", "tc2.5:L14", "tc3:L12", "tc3:v2", "tc3.5:L14", "tc4:L12", "tc5", "tc6")
WALSH = ("tq4+4", "tq4", "tc4:h", "tc3.5:h", "tq3", "tc3:h", "tc2.5:h", "tc2:h")


def beside(results, anchors, ours, theirs):
    """Shows walsh-ref-27m beside other programs, by size."""
    rows = [{**r, "type": "walsh " + r["type"].removesuffix(":h")} for r in results["quality"]
            if r["model"] == "walsh-ref-27m" and r["activations"] == "auto" and ours(r["type"])]
    rows += [{**r, "type": "llama.cpp " + r["type"].removeprefix("pad_") +
              (" (padded)" if r["type"].startswith("pad_") else "")}
             for r in anchors["llama_cpp"] if theirs(r["type"])]
    rows += [{**r, "type": f"exllamav3 {r['type']} (calibrated)"} for r in anchors["exllamav3"]]
    return table(["type", "bits per weight", "perplexity", "KLD", "top-1 %"], [
        [r["type"], f"{r['bpw']:.3f}", f"{r['ppl']:.2f}", number(r["kld"], 3),
         f"{100 * r['top1']:.1f}"] for r in sorted(rows, key=lambda r: -r["bpw"])])


def summary(results, anchors):
    def ours(kind):
        return kind not in RETIRED and (":" not in kind or kind.endswith(":h"))

    return beside(results, anchors, ours, lambda t: "TQ1" not in t)


def compared(results, anchors):
    return beside(results, anchors, WALSH.__contains__, COMPARED.__contains__)


def sizes(results, _):
    """Shows GiB of files of published models, with embedding and head as by default and in bf16."""
    figures = results["sizes"]
    models = list(dict.fromkeys(r["model"] for r in figures["rows"]))
    rows = []
    for kind in dict.fromkeys(r["type"] for r in figures["rows"]):
        cells = [next(r for r in figures["rows"] if (r["model"], r["type"]) == (m, kind))
                 for m in models]
        rows.append([f"`{kind}`"] + [
            f"{c['bytes'] / 2**30:.1f}" + (f", {c['other_bytes'] / 2**30:.1f}"
                                           if "other_bytes" in c else "") for c in cells])
    return table(["type"] + models, rows)


def scale(results, _):
    """Shows GiB of weights, and what each of the fewest GPUs of 80 GB (1, 2, 4, ...) has of them,
    if a part of its memory is left for the cache."""
    free, own = 80e9 / 2**30, 0.75  # what a GPU has, and the share that weights may take
    rows = []
    for r in results["scale"]:
        cells = []
        for kind in (k for k in r if k != "model"):
            gib, gpus = r[kind] / 2**30, 1
            while gib / gpus > own * free:
                gpus *= 2
            cells += [f"{gib:.1f}", f"{gpus} x {gib / gpus:.1f}"]
        rows.append([r["model"], *cells])
    kinds = [k for k in results["scale"][0] if k != "model"]
    return table(["model"] + [cell for k in kinds for cell in (f"`{k}`", "GPUs")], rows)


def ends(results, _):
    """Shows the KLD of models with nothing coded but embedding and head."""
    def what(row):
        if not row["head"]:
            return row["model"] + ", tied"
        name = row["model"].removesuffix("-untied")
        return f"{name}, {'embedding' if row['head'] == 'bf16' else 'head'} alone"

    kinds = list(dict.fromkeys(r["embed"] for r in results["ends"] if not r["head"]))
    known = {}
    for r in results["ends"]:
        kind = r["head"] if r["embed"] == "bf16" else r["embed"]
        known.setdefault(what(r), {})[kind] = f"{r['kld']:.2g}"
    return table(["model"] + [f"`{k}`" for k in kinds],
                 [[name] + [row.get(k, "-") for k in kinds] for name, row in known.items()])


def calibrated(results, _):
    """Shows the KLD on both texts: without a text where that is known, one-sided, two-sided."""
    plain = {(r["model"], r["type"].removesuffix(":h")): r["kld"] for r in results["quality"]
             if r["activations"] == "auto"}
    rows = {}
    for r in results["calibrated"]:
        rows.setdefault((r["model"], r["type"], r["calibrate"], r["flags"]), {})[r["feedback"]] = r
    cells = []
    for (model, kind, text, flags), pair in rows.items():
        one, two = pair.get("one"), pair.get("two")
        change = "-"
        before = None if flags else plain.get((model, kind))
        if one and two:
            change = f"{100 * (two['kld'] / one['kld'] - 1):+.1f} %"
        cells.append([model, kind + (" " + flags if flags else ""), text,
                      f"{(one or two)['bpw']:.3f}", number(before, 3),
                      number(one and one["kld"], 3), number(two and two["kld"], 3), change,
                      number(one and one["second_kld"], 3), number(two and two["second_kld"], 3)])
    return table(["model", "type", "calibrated with", "bits", "KLD without", "one-sided",
                  "two-sided", "change", "second text, one-sided", "two-sided"], cells)


def speed_summary(results, _):
    rows = {}
    for r in results.get("speed", []):
        if r["type"] in RETIRED:
            continue
        kind = "pp" if r["test"].startswith("pp") else "tg"
        rows.setdefault(r["type"], {"bpw": r["bpw"]})[kind] = r
    cells = [[t, f"{r['bpw']:.3f}", f"{r['tg']['tokens_per_s']:.1f}",
              f"{100 * r['tg']['bandwidth_share']:.0f} %", f"{r['pp']['tokens_per_s']:.0f}",
              f"{100 * r['pp']['int8_share']:.0f} %"] for t, r in rows.items()]
    return table(["type", "bits per weight", "decode tokens/s", "of read bandwidth",
                  "prompt tokens/s", "of int8 peak"], cells)


def rungs(results):
    """Returns types of 2 to 5 bits: bits, KLD, tokens/s of a CPU and of a GPU."""
    def decoding(rows, test, shape):
        return {r["type"].removesuffix(":h"): r["tokens_per_s"] for r in rows
                if r["shape"] == shape and r["test"] == test}

    cpu = decoding(results["speed"], "tg64", "1b")
    gpu = decoding(results["gpu"], "tg64", "8b")
    found = {}
    for r in results["quality"]:
        kind = r["type"].removesuffix(":h")
        if r["model"] == "walsh-ref-27m" and r["activations"] == "auto" and kind in cpu \
                and kind in gpu and kind not in RETIRED and r["bpw"] < 5:
            found[kind] = (r["bpw"], r["kld"], cpu[kind], gpu[kind])
    return found


def ladder(results, _):
    """Shows who beats whom: no worse in anything, and better in something by more than the
    scatter."""
    scatter = 1.03
    found = rungs(results)

    def gains(a, b):  # it compares a with b
        return (b[0] / a[0], b[1] / a[1], a[2] / b[2], a[3] / b[3])

    def beats(a, b):
        ratios = gains(a, b)
        return min(ratios) > 1 / scatter and max(ratios) > scatter

    rows = []
    for kind, values in sorted(found.items(), key=lambda item: (-item[1][0], item[1][1])):
        by = [f"`{other}`" for other, better in found.items()
              if other != kind and beats(better, values)]
        bits, kld, cpu, gpu = values
        rows.append([f"`{kind}`", f"{bits:.3f}", number(kld, 3), f"{cpu:.0f}", f"{gpu:.0f}",
                     ", ".join(by) or "-"])
    return table(["type", "bits per weight", "KLD", "CPU, tokens/s", "H200, tokens/s",
                  "beaten by"], rows)


SECTIONS = {"demo": demo, "summary": summary, "compared": compared, "sizes": sizes,
            "scale": scale,
            "speed_summary": speed_summary,
            "perplexity": perplexity, "quality": quality, "llama_cpp": llama_cpp,
            "seeds": seeds, "stress": stress, "ablation": ablation, "speed": speed,
            "gpu": gpu, "agreement": agreement, "ends": ends, "calibrated": calibrated,
            "ladder": ladder}


def fill(markdown, results, anchors):
    """Replaces the text between the markers of every section that has results."""
    for name, make in SECTIONS.items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        source = {"summary": "quality", "compared": "quality", "ladder": "quality",
                  "speed_summary": "speed"}.get(name, name)
        if begin not in markdown or (name != "llama_cpp" and not results.get(source)):
            continue
        head, rest = markdown.split(begin, 1)
        tail = rest.split(end, 1)[1]
        markdown = f"{head}{begin}\n{make(results, anchors)}\n{end}{tail}"
    return markdown


def filled(page):
    """Returns the text of a page with tables made from the present figures."""
    results = json.loads((ROOT / "docs/results.json").read_text())
    results["sizes"] = json.loads((ROOT / "docs/sizes.json").read_text())
    results["scale"] = results["sizes"].get("scale")
    return fill(page.read_text(), results, json.loads((ROOT / "docs/anchors.json").read_text()))
