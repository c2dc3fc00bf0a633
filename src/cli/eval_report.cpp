#include "cli/eval_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <utility>
#include <vector>

#include "cli/terminal.h"
#include "io/json.h"
#include "io/printable.h"

namespace walsh::cli {
namespace {

std::string line(const char* name, const Estimate& e, double unit = 1, const char* suffix = "") {
  return fmt::format("{:<28}: {:>12.6f} +/- {:>10.6f}{}\n", name, e.value * unit, e.error * unit,
                     suffix);
}

std::string value_line(const std::string& name, double value, const char* suffix = "") {
  return fmt::format("{:<28}: {:>12.6f}{}\n", name, value, suffix);
}

std::string percentile_lines(const char* what, const Distribution& values,
                             const std::vector<double>& percents, double unit, const char* suffix) {
  const std::vector<double> found = values.percentiles(percents);
  std::string text = value_line(fmt::format("Maximum {}", what), values.max() * unit, suffix);
  for (size_t i = 0; i < percents.size(); ++i) {
    const double p = percents[i];
    const std::string name =
        p == 50 ? fmt::format("Median  {}", what) : fmt::format("{:.1f}%   {}", p, what);
    text += value_line(name, found[i] * unit, suffix);
  }
  return text + value_line(fmt::format("Minimum {}", what), values.min() * unit, suffix);
}

// Formats ratio and difference of the two perplexities, with errors from the paired ln ratio.
std::string perplexity_block(const DivergenceMeter& d) {
  const Estimate q = d.perplexity(), base = d.reference_perplexity(), ln = d.ln_ratio();
  const double ratio = q.value / base.value;
  const double variance_q = q.error * q.error, variance_base = base.error * base.error;
  const double covariance = d.correlation() * q.error * base.error;
  const double difference_error =
      std::sqrt(std::max(0.0, variance_q + variance_base - 2 * covariance));
  return "====== Perplexity statistics ======\n" + line("Mean PPL(Q)", q) +
         line("Mean PPL(base)", base) +
         value_line("Cor(ln(PPL(Q)), ln(PPL(base)))", 100 * d.correlation(), " %") +
         line("Mean ln(PPL(Q)/PPL(base))", ln) +
         line("Mean PPL(Q)/PPL(base)", {ratio, ratio * ln.error}) +
         line("Mean PPL(Q)-PPL(base)", {q.value - base.value, difference_error});
}

std::string divergence_blocks(const DivergenceMeter& d) {
  const std::vector<double> kld = {99.9, 99, 95, 90, 50, 10, 5, 1, 0.1};
  const std::vector<double> dp = {99.9, 99, 95, 90, 75, 50, 25, 10, 5, 1, 0.1};
  return perplexity_block(d) + "\n====== KL divergence statistics ======\n" +
         line("Mean    KLD", d.kld()) + percentile_lines("KLD", d.kld_values(), kld, 1, "") +
         "\n====== Token probability statistics ======\n" + line("Mean    dp", d.dp(), 100, " %") +
         percentile_lines("dp", d.dp_values(), dp, 100, " %") +
         line("RMS dp", d.rms_dp(), 100, " %") + line("Same top p", d.same_top(), 100, " %");
}

}  // namespace

std::string running_heading(bool with_reference) {
  if (!with_reference) return fmt::format("{:>6}  {:>22}\n", "chunk", "PPL");
  return fmt::format("{:>6}  {:>22}  {:>22}  {:>20}  {:>17}  {:>17}\n", "chunk", "PPL",
                     "ln(PPL(Q)/PPL(base))", "KL Divergence", "dp RMS", "Same top p");
}

std::string running_line(const Evaluation& result) {
  const auto pair = [](const Estimate& e, int digits, double unit = 1) {
    return fmt::format("{:.{}f} +/- {:.{}f}", e.value * unit, digits, e.error * unit, digits);
  };
  std::string text =
      fmt::format("{:>6}  {:>22}", result.windows, pair(result.perplexity.perplexity(), 4));
  if (const auto& d = result.divergence) {
    text += fmt::format("  {:>22}  {:>20}  {:>15} %  {:>15} %", pair(d->ln_ratio(), 5),
                        pair(d->kld(), 5), pair(d->rms_dp(), 3, 100), pair(d->same_top(), 3, 100));
  }
  return text + "\n";
}

std::string eval_text(const Evaluation& result, const EvalSubject& subject) {
  std::string text =
      fmt::format("model     {} ({}, {:.4f} bits per weight, {})\n", one_line(subject.model),
                  subject.type, subject.bpw, human_bytes(subject.bytes));
  if (!subject.reference.empty()) {
    text += fmt::format("reference {} ({})\n", one_line(subject.reference), subject.reference_type);
  }
  if (subject.cache.coded()) {
    text += fmt::format("cache     keys {}, values {}, the latest {} and more f16\n",
                        subject.cache.keys->name, subject.cache.values->name, subject.cache.window);
  }
  text +=
      fmt::format("text      {} ({} tokens scored, rule {}, {:.1f} s)\n\n", one_line(subject.text),
                  result.perplexity.count(), subject.rule, subject.seconds);
  if (result.divergence) text += divergence_blocks(*result.divergence) + "\n";
  const Estimate ppl = result.perplexity.perplexity();
  return text + fmt::format("Final estimate: PPL over {} chunks for n_ctx={} = {:.4f} +/- {:.5f}\n",
                            result.windows, subject.ctx, ppl.value, ppl.error);
}

std::string eval_json(const Evaluation& result, const EvalSubject& subject) {
  using Json = nlohmann::ordered_json;
  const Estimate ppl = result.perplexity.perplexity();
  Json json = {{"model", subject.model},
               {"type", subject.type},
               {"text", subject.text},
               {"rule", subject.rule},
               {"ppl", ppl.value},
               {"ppl_stderr", ppl.error},
               {"tokens", result.perplexity.count()},
               {"chunks", result.windows},
               {"ctx", subject.ctx},
               {"bpw", subject.bpw},
               {"bytes", subject.bytes},
               {"cache",
                {{"keys", subject.cache.keys->name},
                 {"values", subject.cache.values->name},
                 {"window", subject.cache.window}}}};
  if (const auto& d = result.divergence) {
    const Distribution& kld = d->kld_values();
    const std::vector<double> found = kld.percentiles({99.9, 99, 50});
    const Estimate base = d->reference_perplexity(), ln = d->ln_ratio();
    json["reference"] =
        Json{{"model", subject.reference}, {"ppl", base.value}, {"ppl_stderr", base.error}};
    json["kld"] = Json{{"mean", d->kld().value}, {"mean_stderr", d->kld().error},
                       {"p99_9", found[0]},      {"p99", found[1]},
                       {"median", found[2]},     {"max", kld.max()},
                       {"min", kld.min()}};
    json["ln_ratio"] = ln.value;
    json["ln_ratio_stderr"] = ln.error;
    json["top1"] = d->same_top().value;
    json["rms_dp"] = d->rms_dp().value;
    json["mean_dp"] = d->dp().value;
  }
  json["seconds"] = subject.seconds;
  return format_json(json, 2) + "\n";
}

}  // namespace walsh::cli
