#include "serve/completion_request.h"

#include <fmt/format.h>

#include "serve/answer_grammar.h"
#include "serve/fill_prompt.h"
#include "serve/sampling_fields.h"

namespace walsh {
namespace {

constexpr size_t kMostStops = 16;
constexpr int64_t kMostChoices = 8, kMostLogprobs = 20;
constexpr size_t kMostPrompts = 256;  // prompts in one request
// An answer has so many scores at most, unless a single text has more: they take some 140 MB.
constexpr int64_t kMostScores = int64_t{1} << 20;

template <typename T>
std::optional<T> either(std::optional<T> first, std::optional<T> second) {
  return first ? first : second;
}

// Reads the fields that both endpoints share.
CompletionRequest common_request(const Fields& fields, const LoadedModel& model,
                                 const PromptLimits& limits, const GenerationOptions& defaults) {
  CompletionRequest request;
  fields.text("model");  // checked and ignored: there is only one model
  request.n = fields.integer("n", 1, kMostChoices).value_or(1);
  request.stop = fields.texts("stop", kMostStops);
  request.stream = fields.flag("stream").value_or(false);
  if (const Json* options = fields.find("stream_options")) {
    const Fields inner(*options, fields.path("stream_options"));
    request.include_usage = inner.flag("include_usage").value_or(false);
    request.running_usage =
        request.include_usage && inner.flag("continuous_usage_stats").value_or(false);
  }
  request.token_timings = fields.flag("timings_per_token").value_or(false);
  request.token_ids = fields.flag("return_token_ids").value_or(false);
  request.text.shares_prefix = fields.flag("cache_prompt").value_or(true);
  request.text.most_drafted = fields.integer("speculative.n_max", 0, 1024).value_or(-1);
  request.text.shifts = fields.flag("context_shift").value_or(limits.shifts);
  request.text.keep = fields.integer("n_keep", -1, INT32_MAX).value_or(limits.keep);
  request.text.place = fields.integer("id_slot", -1, INT32_MAX).value_or(-1);
  const GenerationOptions options =
      read_sampling(fields, defaults, model.model.config.vocab, model.tokenizer);
  try {
    request.text.sampler = model.generation.sampler(options);
    request.text.breakers =
        make_breakers(request.text.sampler, model.tokenizer,
                      options.dry_sequence_breakers ? &*options.dry_sequence_breakers : nullptr);
    request.text.biases = model.generation.biases(options);
    if (!options.ignore_eos) request.text.stop_ids = model.generation.stop_ids();
  } catch (const Error& e) {
    throw api_error(e);
  }
  return request;
}

std::vector<std::vector<int32_t>> prompts_of(const Fields& fields, const LoadedModel& model,
                                             const PromptLimits& limits) {
  PromptReader reader{kMostPrompts, "prompts", model.model.config.vocab};
  reader.encode = [&](const std::string& text, const std::string&, bool first) {
    check_prompt_bytes(text, limits, "the prompt", "prompt");
    return first ? encode_prompt(model.tokenizer, text) : model.tokenizer.encode(text, false);
  };
  return read_prompts(fields, "prompt", reader);
}

// Returns whether the text before a suffix is asked for.
bool fills(const Fields& fields) {
  return fields.find("input_extra") != nullptr || !fields.text("suffix").value_or("").empty();
}

std::vector<FillRequest::File> files_of(const Fields& fields) {
  std::vector<FillRequest::File> files;
  const Json* list = fields.find("input_extra");
  if (list == nullptr) return files;
  if (!list->is_array())
    fields.refuse("input_extra", "a list of objects with 'filename' and 'text'");
  for (size_t i = 0; i < list->size(); ++i) {
    const Fields file((*list)[i], fmt::format("{}[{}]", fields.path("input_extra"), i));
    const auto text = file.text("text");
    if (!text) file.refuse("text", "a string");
    files.push_back({file.text("filename").value_or("tmp"), *text});
  }
  return files;
}

// Reads the prompt that is the text before a suffix. The middle has the room that the request gives
// it, or else a quarter of the context.
void read_fill(const Fields& fields, const LoadedModel& model, const PromptLimits& limits,
               CompletionRequest& request) {
  const auto tokens = fill_tokens(model.tokenizer);
  if (!tokens)
    fields.refuse("suffix", "empty: the model has no tokens for filling in text before a suffix");
  if (request.echo) fields.refuse("echo", "false, since there is a suffix");
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr || !prompt->is_string())
    fields.refuse("prompt", "a string, since there is a suffix");
  FillRequest fill;
  fill.prefix = prompt->get<std::string>();
  fill.suffix = fields.text("suffix").value_or("");
  check_prompt_bytes(fill.prefix, limits, "the prompt", "prompt");
  check_prompt_bytes(fill.suffix, limits, "the suffix", "suffix");
  fill.files = files_of(fields);
  for (const FillRequest::File& file : fill.files)
    check_prompt_bytes(file.name + file.text, limits, "a file", "input_extra");
  const int64_t quarter = limits.positions / 4, most = request.text.max_tokens;
  const int64_t room =
      limits.positions - (most < 0 ? quarter : std::min(most, limits.positions / 2));
  request.prompts = {fill_prompt(model.tokenizer, *tokens, fill, room)};
  auto& stops = request.text.stop_ids;
  stops.insert(stops.end(), tokens->ends.begin(), tokens->ends.end());
}

void check_lengths(const CompletionRequest& request, int64_t positions) {
  if (request.text.shifts) return;  // Longer prompts are cut.
  for (const auto& prompt : request.prompts)
    check_prompt_tokens(prompt, positions, "the prompt", request.chat ? "messages" : "prompt");
}

// Reads max_tokens, or llama.cpp's n_predict, with which its clients send -1 for "until the end".
std::optional<int64_t> most_tokens(const Fields& fields) {
  return either(fields.integer("max_tokens", -1, INT32_MAX),
                fields.integer("n_predict", -1, INT32_MAX));
}

// Limits the scores that are kept until the answer is complete; for a single text all of them are
// allowed.
void check_scores(const CompletionRequest& request, int64_t positions) {
  if (request.text.logprobs < 0) return;
  int64_t tokens = 0;
  for (const auto& prompt : request.prompts) {
    const auto count = static_cast<int64_t>(prompt.size());
    const int64_t most = request.text.max_tokens;
    const int64_t generated = most < 0 ? positions - count : std::min(most, positions - count);
    tokens += request.n * (generated + (request.text.prompt_logprobs ? count : 0));
  }
  const int64_t scores = tokens * (request.text.logprobs + 1);
  const int64_t most = std::max(kMostScores, positions * (kMostLogprobs + 1));
  if (scores <= most) return;
  throw ApiError(
      400,
      fmt::format("{} log-probabilities are requested, but one answer has at most {}: ask for "
                  "fewer prompts, choices or tokens at once",
                  scores, most),
      "logprobs");
}

// Reads which log-probabilities an answer has: OpenAI's "logprobs" or llama.cpp's "n_probs".
void read_scores(const Fields& fields, CompletionRequest& request) {
  const auto logprobs = fields.integer("logprobs", 0, kMostLogprobs);
  const int64_t by_id = fields.integer("n_probs", 0, kMostLogprobs).value_or(0);
  if (logprobs && by_id > 0) fields.refuse("n_probs", "absent, since there is 'logprobs'");
  request.scores_by_id = by_id > 0;
  if (!logprobs && by_id == 0) return;
  request.text.logprobs = static_cast<int>(logprobs.value_or(by_id));
  request.text.prompt_logprobs = request.echo && logprobs;
}

void refuse_other_answers(const Fields& fields) {
  for (const char* key : {"functions", "function_call"})
    if (fields.find(key) != nullptr) fields.refuse(key, "absent: use 'tools' and 'tool_choice'");
  for (const std::string& kind : fields.texts("modalities", kMostStops))
    if (kind != "text") fields.refuse("modalities", R"(["text"])");
}

// Reads how many tokens the model may think; -1: any number.
int64_t thinking_tokens(const Fields& fields, int64_t otherwise) {
  for (const char* key : {"reasoning_budget", "thinking_budget_tokens", "thinking_budget"})
    if (const auto tokens = fields.integer(key, -1, INT32_MAX)) return *tokens;
  return otherwise;
}

// Returns how the reasoning is ended that a model writes; nothing if it does not mark it.
std::optional<ThinkingLimit> thinking_limit(const ChatSyntax& syntax, int64_t tokens,
                                            const Tokenizer& tokenizer) {
  if (tokens < 0) return std::nullopt;
  ThinkingLimit limit;
  limit.tokens = tokens;
  limit.begin = syntax.think_begin;
  limit.end = syntax.think_end;
  limit.inside = syntax.thinking;
  std::string forced = syntax.think_end;
  if (syntax.tools == ToolSyntax::harmony) {  // GPT-OSS has channels.
    limit.begin = "<|channel|>analysis<|message|>";
    limit.end = "<|end|>";
    forced = limit.end + "<|start|>assistant<|channel|>final<|message|>";
  }
  if (limit.end.empty()) return std::nullopt;
  limit.forced = tokenizer.encode(forced, false);
  return limit;
}

// Reads tools, the handling of reasoning, and the required form of the answer.
void read_answer_fields(const OrderedJson& body, const Fields& fields, const LoadedModel& model,
                        const PromptLimits& limits, const std::string& prompt,
                        CompletionRequest& request) {
  const ToolRequest tools = tool_request(body);
  ChatSyntax syntax;
  if (model.chat) syntax = chat_syntax(model.chat->source(tools.any()), prompt);
  const std::optional<AnswerText> text = answer_text(body);
  if (tools.required || tools.any_strict() || text) syntax = enforceable(std::move(syntax));
  if (tools.any() && !syntax.shows_tools)
    fields.refuse("tools", "absent: the model's chat template does not show tools");
  const std::string format = fields.text("reasoning_format").value_or("auto");
  if (format != "auto" && format != "deepseek" && format != "none")
    fields.refuse("reasoning_format", "auto, deepseek or none");
  request.thinking =
      thinking_limit(syntax, thinking_tokens(fields, limits.thinking), model.tokenizer);
  request.show_reasoning = fields.flag("include_reasoning").value_or(true);
  request.text.grammar = chat_grammar(model, syntax, tools, text, request.text.owner);
  const bool harmony = syntax.tools == ToolSyntax::harmony;
  if (!tools.any() && !harmony && (syntax.think_end.empty() || format == "none")) return;
  AnswerReaderOptions reader;
  reader.syntax = std::move(syntax);
  reader.read_tools = tools.any();
  reader.read_reasoning = format != "none";
  reader.required = tools.required;
  reader.enforced = tools.any() && request.text.grammar != nullptr;
  if (!tools.parallel) reader.most_calls = 1;
  reader.tools = tools.tools;
  const ToolSyntax form = reader.syntax.tools;
  if (form == ToolSyntax::qwen || form == ToolSyntax::minimax || form == ToolSyntax::glm)
    reader.texts = text_parameters(tools.tools);
  request.reader = std::move(reader);
}

}  // namespace

CompletionRequest parse_completion(const OrderedJson& body, const LoadedModel& model,
                                   const PromptLimits& limits, const GenerationOptions& defaults,
                                   const std::string& owner) {
  const Json sorted = body;
  const Fields fields(sorted, "");
  CompletionRequest request = common_request(fields, model, limits, defaults);
  request.text.owner = owner;
  if (fields.integer("best_of", 1, INT32_MAX).value_or(request.n) != request.n)
    fields.refuse("best_of", fmt::format("{}, the same as 'n'", request.n));
  // OpenAI's default is 16 tokens.
  request.text.max_tokens = most_tokens(fields).value_or(16);
  request.echo = fields.flag("echo").value_or(false);
  read_scores(fields, request);
  if (fills(fields)) {
    read_fill(fields, model, limits, request);
  } else {
    request.prompts = prompts_of(fields, model, limits);
  }
  check_lengths(request, limits.positions);
  check_scores(request, limits.positions);
  request.text.grammar = text_grammar(model, answer_text(body), owner);
  return request;
}

CompletionRequest parse_chat(const OrderedJson& body, const LoadedModel& model,
                             const PromptLimits& limits, const GenerationOptions& defaults,
                             const std::string& owner, const std::string& prompt) {
  const Json sorted = body;
  const Fields fields(sorted, "");
  CompletionRequest request = common_request(fields, model, limits, defaults);
  request.text.owner = owner;
  refuse_other_answers(fields);
  request.chat = true;
  check_prompt_bytes(prompt, limits, "the prompt", "messages");
  request.prompts = {model.tokenizer.encode(prompt, false)};
  request.text.max_tokens =
      either(fields.integer("max_completion_tokens", 0, INT32_MAX), most_tokens(fields))
          .value_or(-1);
  const auto best = fields.integer("top_logprobs", 0, kMostLogprobs);
  if (fields.flag("logprobs").value_or(false))
    request.text.logprobs = static_cast<int>(best.value_or(0));
  check_lengths(request, limits.positions);
  check_scores(request, limits.positions);
  read_answer_fields(body, fields, model, limits, prompt, request);
  return request;
}

}  // namespace walsh
