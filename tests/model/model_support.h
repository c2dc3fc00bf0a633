// Loads the checkpoints of the model tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/random.h"
#include "io/checkpoint.h"
#include "model/cpu/executor.h"
#include "model/model.h"
#include "model/session.h"
#include "weights/checkpoint_source.h"

namespace walsh::test {

inline std::string tiny_model(const std::string& name) {
  return std::string(WALSH_TEST_DATA) + "/models/" + name;
}

// Returns the folder of a model by name; empty if it is one of the shared ones and they are not
// here.
inline std::string model_folder(const std::string& name) {
  const char* shared = std::getenv("WALSH_SHARED");
  const std::string source = WALSH_SOURCE_DIR;
  for (const std::string& parent :
       {std::string(WALSH_TEST_DATA) + "/models/", source + "/models/",
        (shared != nullptr ? std::string(shared) : source + "/../shared") + "/models/"}) {
    if (std::filesystem::exists(parent + name + "/config.json")) return parent + name;
  }
  return "";
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline ModelConfig read_config(const std::string& folder) {
  return parse_config(read_file(folder + "/config.json"), folder + "/config.json");
}

inline Model load_folder(const std::string& folder, ThreadPool& pool) {
  CheckpointSource source = CheckpointSource::open(folder);
  const ModelConfig config = parse_config(source.config_json(), folder + "/config.json");
  return Model::load(source, config, {&pool, ActivationMode::automatic, {}});
}

using Rows = std::vector<std::vector<float>>;

inline std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab))));
  return tokens;
}

// Returns the logits of all `tokens`, one row per token.
inline Rows all_logits(Session& session, const std::vector<int32_t>& tokens) {
  Rows rows;
  session.forward(tokens, [&](int64_t, std::span<const float> logits) {
    rows.emplace_back(logits.begin(), logits.end());
  });
  return rows;
}

// Holds an executor on the CPU and one sequence, for which `positions` positions are reserved.
struct OneSequence {
  OneSequence(const Model& model, int64_t positions)
      : pages(shape(model, positions)), executor(model, reserved(positions), uint64_t{1} << 30) {}

  KvPages pages;
  CpuExecutor executor;

 private:
  static KvShape shape(const Model& model, int64_t positions) {
    SessionOptions options;
    options.max_positions = positions;
    return kv_shape(model, options);
  }
  const KvPages& reserved(int64_t positions) {
    const Growth all{pages.open(), positions};
    pages.reserve({&all, 1});
    return pages;
  }
};

// Submits the tokens to sequence 0; without tokens, the one that was chosen last.
inline void submit(Session& session, std::span<const int32_t> tokens) {
  const SequenceTokens item{0, tokens, 1};
  session.submit({&item, 1});
}

// Evaluates one more token for each of the sequences from 0 on.
inline void decode(Session& session, const std::vector<int32_t>& tokens, BatchSink sink) {
  std::vector<SequenceTokens> batch;
  for (const int32_t& token : tokens)
    batch.push_back({static_cast<int64_t>(batch.size()), {&token, 1}});
  session.evaluate(batch, sink);
}

// Takes four texts out of `tokens` of different lengths, the shortest 3, which are read one by one
// and then go on together for `steps` tokens: gives what they are at the end, and the last logits
// of each.
struct Together {
  std::vector<std::vector<int32_t>> texts;
  Rows rows;
};

inline Together decode_together(const Model& model, const std::vector<int32_t>& tokens, int steps) {
  SessionOptions options;
  options.max_positions = 400;
  options.sequences = 4;
  Session session(model, options);
  for (int s = 1; s < 4; ++s)
    session.open();
  Together result;
  auto& texts = result.texts;
  auto& rows = result.rows;
  for (const int64_t length : {3, 63, 290, 130}) {
    texts.emplace_back(tokens.begin() + length, tokens.begin() + 2 * length);
    session.forward(
        texts.back(), [](int64_t, std::span<const float>) {},
        static_cast<int64_t>(texts.back().size()), static_cast<int64_t>(texts.size()) - 1);
  }
  for (int step = 0; step < steps; ++step) {
    const std::vector<int32_t> next(tokens.begin() + step, tokens.begin() + step + 4);
    rows.clear();
    decode(session, next, [&](size_t, int64_t, std::span<const float> logits) {
      rows.emplace_back(logits.begin(), logits.end());
    });
    for (size_t s = 0; s < texts.size(); ++s)
      texts[s].push_back(next[s]);
  }
  return result;
}

// Returns the mean KL divergence of the softmax of `found` from that of `expected`.
inline double divergence(const Rows& expected, const Rows& found) {
  double sum = 0;
  for (size_t r = 0; r < expected.size(); ++r) {
    const auto log_sum = [](const std::vector<float>& row) {
      const double top = *std::max_element(row.begin(), row.end());
      double total = 0;
      for (const float v : row)
        total += std::exp(v - top);
      return top + std::log(total);
    };
    const double p_sum = log_sum(expected[r]), q_sum = log_sum(found[r]);
    for (size_t i = 0; i < expected[r].size(); ++i) {
      const double p = expected[r][i] - p_sum;
      sum += std::exp(p) * (p - (found[r][i] - q_sum));
    }
  }
  return sum / static_cast<double>(expected.size());
}

}  // namespace walsh::test
