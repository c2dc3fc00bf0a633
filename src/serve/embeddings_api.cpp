#include "serve/embeddings_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "api/embedding.h"
#include "serve/fields.h"
#include "serve/prompts.h"

namespace walsh {
namespace {

static_assert(std::endian::native == std::endian::little, "clients read the bytes as such floats");

std::string base64(std::span<const float> values) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bytes = std::as_bytes(values);
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? std::to_integer<uint32_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return text;
}

std::string list(std::span<const float> values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

// OpenAI limits a request to 2048 inputs, which have 300,000 tokens together.
constexpr size_t kMostTexts = 2048;
constexpr int64_t kMostTokens = 300000;

void check_text(const std::string& text, const PromptLimits& limits, const std::string& field) {
  if (text.empty()) throw ApiError(400, fmt::format("'{}' is empty", field), field);
  check_prompt_bytes(text, limits, fmt::format("'{}'", field), field);
}

// Counts the tokens of a request's texts, and refuses the request as soon as it has too many, so
// that no more texts are tokenized in vain.
class TokenCount {
 public:
  TokenCount(const PromptLimits& limits, std::string field)
      : limits_(limits), field_(std::move(field)) {}

  // Adds the tokens of a text; `field` names it.
  void add(const std::vector<int32_t>& tokens, const std::string& field) {
    check_prompt_tokens(tokens, limits_.positions, fmt::format("'{}'", field), field);
    total_ += std::ssize(tokens);
    if (total_ <= kMostTokens) return;
    throw ApiError(
        400, fmt::format("'{}' has more tokens than the {} of one request", field_, kMostTokens),
        field_);
  }

 private:
  const PromptLimits limits_;
  const std::string field_;
  int64_t total_ = 0;
};

std::vector<std::vector<int32_t>> inputs_of(const Fields& fields, const char* key,
                                            const LoadedModel& model, const PromptLimits& limits) {
  TokenCount count(limits, key);
  PromptReader reader{kMostTexts, "inputs", model.model.config.vocab};
  reader.encode = [&](const std::string& text, const std::string& field, bool first) {
    check_text(text, limits, field);
    return model.tokenizer.encode(text, first);
  };
  reader.check = [&](const std::vector<int32_t>& tokens, const std::string& field) {
    count.add(tokens, field);
  };
  return read_prompts(fields, key, reader);
}

EmbeddingForm form_of(const Fields& fields, const LoadedModel& model, EmbeddingsForm form) {
  EmbeddingOptions options;
  options.dimensions = fields.integer("dimensions", 1, model.model.config.hidden).value_or(0);
  if (form == EmbeddingsForm::old_ollama) options.normalize = false;
  // llama.cpp's norm 2 is the length and -1 is none; other norms are rare.
  if (form == EmbeddingsForm::llama)
    if (const auto norm = fields.integer("embd_normalize", -1, 2)) {
      if (*norm != 2 && *norm != -1) fields.refuse("embd_normalize", "2 or -1");
      options.normalize = *norm == 2;
    }
  try {
    return embedding_form(model, options);
  } catch (const Error& e) {
    throw api_error(e);
  }
}

// Puts the answer around the embeddings, which are JSON already.
std::string embeddings_text(EmbeddingsForm form, std::span<const std::string> embeddings,
                            const std::string& model, int64_t tokens) {
  const std::string name = Json(model).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  const auto to = std::back_inserter(text);
  for (size_t i = 0; i < embeddings.size(); ++i) {
    if (i > 0) text += ',';
    if (form == EmbeddingsForm::openai) {
      fmt::format_to(to, R"({{"object":"embedding","index":{},"embedding":{}}})", i, embeddings[i]);
    } else if (form == EmbeddingsForm::llama) {
      fmt::format_to(to, R"({{"index":{},"embedding":[{}]}})", i, embeddings[i]);
    } else {
      text += embeddings[i];
    }
  }
  if (form == EmbeddingsForm::llama) return "[" + text + "]";
  if (form == EmbeddingsForm::old_ollama) return fmt::format(R"({{"embedding":{}}})", text);
  if (form == EmbeddingsForm::ollama)
    return fmt::format(R"({{"model":{},"embeddings":[{}],"prompt_eval_count":{}}})", name, text,
                       tokens);
  return fmt::format(R"({{"object":"list","data":[{}],"model":{},)"
                     R"("usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                     text, name, tokens, tokens);
}

HttpResponse text_response(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

struct Document {
  std::string text;
  float score = 0;
};

std::vector<Document> documents_of(const Fields& fields, const char* key) {
  const char* expected = "a list of strings or of objects with 'text'";
  const Json* list = fields.find(key);
  if (list == nullptr || !list->is_array() || list->empty()) fields.refuse(key, expected);
  if (list->size() > kMostTexts)
    fields.refuse(key, fmt::format("at most {} documents", kMostTexts));
  std::vector<Document> documents;
  for (const Json& one : *list) {
    const bool is_object = one.is_object() && one.contains("text") && one["text"].is_string();
    if (!one.is_string() && !is_object) fields.refuse(key, expected);
    documents.push_back({is_object ? one["text"].get<std::string>() : one.get<std::string>()});
  }
  return documents;
}

// Says in which form a ranking lists documents, and how many it has.
struct RankingForm {
  bool bare = false;  // text-embeddings-inference has a list without more around it
  bool with_texts = false;
  size_t most = 0;
};

Json ranking(std::span<const Document> documents, const RankingForm& form) {
  std::vector<size_t> order;
  for (size_t i = 0; i < documents.size(); ++i)
    order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return documents[a].score > documents[b].score; });
  Json results = Json::array();
  for (size_t i = 0; i < std::min(form.most, order.size()); ++i) {
    const Document& document = documents[order[i]];
    Json result = {{"index", order[i]}, {form.bare ? "score" : "relevance_score", document.score}};
    if (form.with_texts && form.bare) result["text"] = document.text;
    if (form.with_texts && !form.bare) result["document"] = {{"text", document.text}};
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace

TextReadings::Request parse_embeddings(const OrderedJson& body, EmbeddingsForm form,
                                       const LoadedModel& model, const PromptLimits& limits,
                                       const std::string& model_name, const std::string& owner) {
  const Json sorted = body;
  const Fields fields(sorted, "");
  fields.text("model");  // it is checked and ignored, because there is only one model
  const std::string encoding = fields.text("encoding_format").value_or("float");
  if (encoding != "float" && encoding != "base64")
    fields.refuse("encoding_format", "float or base64");
  const EmbeddingForm wanted = form_of(fields, model, form);
  const bool content = form == EmbeddingsForm::llama && fields.find("content") != nullptr;
  const bool one = form == EmbeddingsForm::old_ollama;
  if (one && !fields.text("prompt")) fields.refuse("prompt", "a string");
  TextReadings::Request request;
  request.prompts = inputs_of(fields,
                              one       ? "prompt"
                              : content ? "content"
                                        : "input",
                              model, limits);
  request.reading = wanted.pooling;
  request.owner = owner;
  const auto made = std::make_shared<std::vector<std::string>>(request.prompts.size());
  request.take = [made, wanted, encoding](size_t index, std::span<const float> values) {
    std::vector<float> embedding(values.begin(), values.end());
    wanted.apply(embedding);
    (*made)[index] = encoding == "base64" ? '"' + base64(embedding) + '"' : list(embedding);
  };
  request.answer = [made, form, model_name](int64_t tokens) {
    return text_response(embeddings_text(form, *made, model_name, tokens));
  };
  return request;
}

TextReadings::Request parse_rerank(const OrderedJson& body, const Reranker& reranker,
                                   const LoadedModel& model, const PromptLimits& limits,
                                   const std::string& model_name, const std::string& owner) {
  const Json sorted = body;
  const Fields fields(sorted, "");
  fields.text("model");
  const auto query = fields.text("query");
  if (!query || query->empty()) fields.refuse("query", "a text that is not empty");
  check_text(*query, limits, "query");
  const std::string instruction = fields.text("instruction").value_or("");
  const char* key = fields.find("texts") != nullptr ? "texts" : "documents";
  const auto documents = std::make_shared<std::vector<Document>>(documents_of(fields, key));
  RankingForm form;
  form.bare = fields.find("texts") != nullptr;
  form.with_texts = fields.flag(form.bare ? "return_text" : "return_documents").value_or(false);
  form.most =
      static_cast<size_t>(fields.integer("top_n", 1, INT32_MAX).value_or(std::ssize(*documents)));
  TextReadings::Request request;
  request.reading = Reading::logits;
  request.owner = owner;
  TokenCount count(limits, key);  // the query counts for every document
  for (size_t i = 0; i < documents->size(); ++i) {
    const std::string field = fmt::format("{}[{}]", key, i);
    check_text((*documents)[i].text, limits, field);
    request.prompts.push_back(
        reranker.prompt(model.tokenizer, instruction, *query, (*documents)[i].text));
    count.add(request.prompts.back(), field);
  }
  request.take = [documents, reranker](size_t index, std::span<const float> logits) {
    (*documents)[index].score = reranker.score(logits);
  };
  request.answer = [documents, model_name, form](int64_t tokens) {
    Json answer = ranking(*documents, form);
    if (!form.bare)
      answer = {{"object", "list"},
                {"model", model_name},
                {"results", std::move(answer)},
                {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
    return text_response(answer.dump(-1, ' ', false, Json::error_handler_t::replace));
  };
  return request;
}

}  // namespace walsh
