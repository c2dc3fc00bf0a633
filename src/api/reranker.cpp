#include "api/reranker.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::string_view kBegin =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
constexpr std::string_view kEnd = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

}  // namespace

bool Reranker::is_named(std::string_view name) {
  std::string lower(name);
  for (char& c : lower)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower.find("rerank") != std::string::npos;
}

std::optional<Reranker> Reranker::of(const LoadedModel& model) {
  const Tokenizer& tokenizer = model.tokenizer;
  const auto yes = tokenizer.token_id("yes"), no = tokenizer.token_id("no");
  const int64_t vocab = model.model.config.vocab;
  const bool turns = tokenizer.token_id("<|im_start|>") && tokenizer.token_id("<|im_end|>");
  if (!yes || !no || !turns || *yes >= vocab || *no >= vocab) return std::nullopt;
  Reranker reranker;
  reranker.yes_ = *yes;
  reranker.no_ = *no;
  reranker.begin_ = tokenizer.encode(kBegin, false);
  reranker.end_ = tokenizer.encode(kEnd, false);
  return reranker;
}

// The three parts are tokenized by themselves, as in the model card.
std::vector<int32_t> Reranker::prompt(const Tokenizer& tokenizer, std::string_view instruction,
                                      std::string_view query, std::string_view document) const {
  std::string text = "<Instruct>: ";
  text += instruction.empty() ? kInstruction : instruction;
  text += "\n<Query>: ";
  text += query;
  text += "\n<Document>: ";
  text += document;
  std::vector<int32_t> tokens = begin_;
  const std::vector<int32_t> middle = tokenizer.encode(text, false);
  tokens.insert(tokens.end(), middle.begin(), middle.end());
  tokens.insert(tokens.end(), end_.begin(), end_.end());
  return tokens;
}

float Reranker::score(std::span<const float> logits) const {
  const double no = logits[static_cast<size_t>(no_)], yes = logits[static_cast<size_t>(yes_)];
  if (!std::isfinite(no) || !std::isfinite(yes))
    throw Error(ErrorCode::bad_input, "logits", "those of yes and no are not finite");
  return static_cast<float>(1 / (1 + std::exp(no - yes)));
}

}  // namespace walsh
