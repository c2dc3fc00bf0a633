// `walsh embed MODEL TEXT...` writes embeddings of texts, or of the lines of standard input, as
// lines of JSON.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "model/part_executor.h"
#include "walsh/batch.h"
#include "walsh/engine.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr size_t kMostLineBytes = size_t{64} << 20;
// This many lines are read before their embeddings are written.
constexpr size_t kLinesTogether = 256;

struct Options {
  ModelOptions model;
  std::vector<std::string> texts;
  EmbeddingOptions embedding;
  BatchOptions batch;
};

// Writes the embeddings of texts; `first` is the number of the first one.
void write_embeddings(TextBatch& batch, const Engine& engine, const Options& options,
                      const std::vector<std::string>& texts, size_t first) {
  std::vector<std::vector<int32_t>> tokens;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string where = fmt::format("text {}", first + i);
    if (texts[i].empty()) throw Error(ErrorCode::usage, where, "it is empty");
    tokens.push_back(engine.encode(texts[i]));
    if (std::ssize(tokens.back()) > batch.context()) {
      throw Error(ErrorCode::usage, where,
                  fmt::format("it has {} tokens, but the context has room for {}",
                              tokens.back().size(), batch.context()));
    }
  }
  const auto embeddings = batch.embed_tokens(tokens, options.embedding);
  for (size_t i = 0; i < texts.size(); ++i) {
    write_result(fmt::format(R"({{"index":{},"tokens":{},"embedding":[{}]}})", first + i,
                             tokens[i].size(), fmt::join(embeddings[i], ",")) +
                 "\n");
  }
}

int embed(const Options& options) {
  options.model.machine.apply();
  const InterruptGuard interrupt;
  const ModelUse use{.positions = options.batch.context,
                     .sequences = options.batch.running + options.batch.kept,
                     .texts = options.batch.running};
  const Engine engine = options.model.open_engine(use, {}, nullptr, true);
  TextBatch batch(engine, options.batch);
  if (!options.texts.empty()) {
    write_embeddings(batch, engine, options, options.texts, 0);
    return 0;
  }
  LineReader lines(kMostLineBytes);
  size_t written = 0;
  for (bool more = true; more && !output_failed();) {
    std::vector<std::string> texts;
    while (texts.size() < kLinesTogether) {
      std::optional<std::string> line = lines.next();
      more = line.has_value();
      if (!more) break;
      texts.push_back(std::move(*line));
    }
    write_embeddings(batch, engine, options, texts, written);
    written += texts.size();
  }
  return 0;
}

}  // namespace

Action add_embed(Command& command) {
  const auto options = std::make_shared<Options>();
  options->batch.kept = 1;
  options->model.add_to(command);
  command.add("TEXT", &options->texts,
              "Texts; without them, the lines of standard input are the texts");
  add_pooling(command, options->embedding.pooling);
  const FlagGroup group = command.group("Embeddings");
  group.add("--normalize,!--no-normalize", &options->embedding.normalize,
            "Give embeddings unit length; default: as the model's files say, otherwise yes");
  group.add("--dimensions", &options->embedding.dimensions,
            "Only the first N values, of unit length again; 0: all",
            {.shown = true, .range = between(0, 1 << 20)});
  group.add("-c,--ctx,--ctx-size", &options->batch.context,
            "Context of each text in tokens; 0: the model's, at most 4096",
            {.shown = true, .range = between(int64_t{0}, int64_t{1} << 40)});
  group.add("-P,--parallel", &options->batch.running, "Texts evaluated together",
            {.shown = true, .range = between(int64_t{1}, kCpuRows)});
  return [options] { return embed(*options); };
}

}  // namespace walsh::cli
