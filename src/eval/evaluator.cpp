#include "eval/evaluator.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "eval/token_score.h"
#include "model/session.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int64_t kLogitBytes = int64_t{64} << 20;  // each model holds logits of this many bytes
constexpr int64_t kMinRows = 32;

// Runs a model and keeps the logits of the tokens that it evaluated last.
class Scorer {
 public:
  Scorer(const Model& model, int64_t ctx, int64_t rows)
      : session_(model, {.max_positions = ctx}),
        vocab_(model.config.vocab),
        logits_(static_cast<size_t>(rows * vocab_)) {}

  void start_window() { session_.reset(); }

  // Evaluates `tokens` and keeps the logits from index `first` on.
  void forward(std::span<const int32_t> tokens, int64_t first) {
    const auto keep = [&](int64_t index, std::span<const float> row) {
      std::copy(row.begin(), row.end(), logits_.data() + (index - first) * vocab_);
    };
    session_.forward(tokens, keep, first);
  }

  std::span<const float> row(int64_t i) const {
    return {logits_.data() + i * vocab_, static_cast<size_t>(vocab_)};
  }

 private:
  Session session_;
  int64_t vocab_;
  AlignedArray<float> logits_;
};

void check_vocabulary(const char* flag, int64_t vocab, const Model& model) {
  if (vocab == model.config.vocab) return;
  throw Error(ErrorCode::usage, flag,
              "its vocabulary has " + std::to_string(vocab) + " tokens, the model's " +
                  std::to_string(model.config.vocab));
}

class Evaluator {
 public:
  Evaluator(const Model& model, const Model* reference, const EvalOptions& options)
      : Evaluator(model, options, options.windows.ctx) {
    if (reference) {
      check_vocabulary("--reference", reference->config.vocab, model);
      reference_.emplace(*reference, options.windows.ctx, rows_);
      result_.divergence.emplace();
    }
  }

  Evaluator(const Model& model, const StoredLogits& reference, const EvalOptions& options)
      : Evaluator(model, options, reference.ctx()) {
    check_vocabulary("--kl-divergence-base", reference.vocab(), model);
    stored_ = &reference;
    result_.divergence.emplace();
  }

  Evaluation run(std::span<const int32_t> text) {
    const WindowPlan windows(static_cast<int64_t>(text.size()), options_.windows);
    for (int64_t w = 0; w < windows.size(); ++w)
      add_window(window_tokens(text, windows[w], options_.bos), windows[w].first_scored, w,
                 windows.size());
    return std::move(result_);
  }

  Evaluation run_stored() {
    const int64_t wanted = options_.windows.chunks;
    const int64_t count = wanted > 0 ? std::min(wanted, stored_->windows()) : stored_->windows();
    for (int64_t w = 0; w < count; ++w) {
      const std::vector<int32_t> text = stored_->tokens(w);
      add_window(window_tokens(text, {0, stored_->ctx(), 1}, options_.bos),
                 stored_->first_position() + 1, w, count);
    }
    return std::move(result_);
  }

 private:
  Evaluator(const Model& model, const EvalOptions& options, int64_t ctx)
      : options_(options), pool_(model.pool()) {
    const int64_t fitting = kLogitBytes / (4 * model.config.vocab);
    rows_ = std::min(ctx, std::max(fitting, kMinRows));
    model_.emplace(model, ctx, rows_);
  }

  void add_window(const std::vector<int32_t>& tokens, int64_t first_scored, int64_t window,
                  int64_t windows) {
    score_window(tokens, first_scored, window);
    ++result_.windows;
    if (options_.progress) options_.progress(result_, windows);
  }

  void score_window(const std::vector<int32_t>& tokens, int64_t first_scored, int64_t window) {
    model_->start_window();
    if (reference_) reference_->start_window();
    // Nothing after the last token is scored, so it need not be evaluated.
    const int64_t count = static_cast<int64_t>(tokens.size()) - 1;
    for (int64_t begin = 0; begin < count; begin += rows_) {
      const int64_t end = std::min(begin + rows_, count);
      const int64_t first = std::clamp(first_scored - 1, begin, end);
      const std::span<const int32_t> piece =
          std::span(tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
      model_->forward(piece, first - begin);
      if (reference_) reference_->forward(piece, first - begin);
      score_rows(tokens.data() + first + 1, end - first, window, first);
    }
  }

  // Scores rows: row i of the kept logits belongs to position `first` + i of a window and predicts
  // targets[i].
  void score_rows(const int32_t* targets, int64_t rows, int64_t window, int64_t first) {
    scores_.assign(static_cast<size_t>(rows), {});
    pool_.for_each(rows, [&](int64_t i) {
      TokenScore& score = scores_[static_cast<size_t>(i)];
      if (reference_) {
        score = compare_token(reference_->row(i), model_->row(i), targets[i]);
      } else if (stored_) {
        std::vector<float> row(static_cast<size_t>(stored_->vocab()));
        stored_->read_row(window, first + i, row);
        score = compare_token(row, model_->row(i), targets[i]);
      } else {
        score.nll = token_nll(model_->row(i), targets[i]);
      }
    });
    for (const TokenScore& score : scores_) {
      result_.perplexity.add(score.nll);
      if (result_.divergence) result_.divergence->add(score);
    }
  }

  const EvalOptions& options_;
  ThreadPool& pool_;
  int64_t rows_ = 0;  // this many tokens are evaluated between two rounds of scoring
  std::optional<Scorer> model_, reference_;
  const StoredLogits* stored_ = nullptr;
  std::vector<TokenScore> scores_;
  Evaluation result_;
};

}  // namespace

Evaluation evaluate(const Model& model, const Model* reference, std::span<const int32_t> text,
                    const EvalOptions& options) {
  // Checks the options before allocating memory.
  static_cast<void>(WindowPlan(static_cast<int64_t>(text.size()), options.windows));
  return Evaluator(model, reference, options).run(text);
}

Evaluation evaluate(const Model& model, const StoredLogits& reference, const EvalOptions& options) {
  return Evaluator(model, reference, options).run_stored();
}

}  // namespace walsh
