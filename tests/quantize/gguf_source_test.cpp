// GGUF files of llama.cpp's converter describe the checkpoints that they were made from, and errors
// in a file are reported. (tests/model/gguf_test.cpp compares the computed results.)
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "arch/rope.h"
#include "gguf_recipe.h"
#include "import/gguf_checkpoint.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "temporary_folder.h"
#include "walsh/error.h"
#include "weights/checkpoint_source.h"

namespace walsh {
namespace {

std::vector<float> values(CheckpointSource& source, const std::string& name) {
  const Tensor tensor = source.load(name);
  std::vector<float> result(static_cast<size_t>(tensor.rows * tensor.cols));
  decode_rows(tensor, 0, tensor.rows, result.data());
  return result;
}

class GgufSource : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    test::copy_gguf_source(GetParam(), work_.file("folder"));
    test::write_gguf_recipe(GetParam(), work_.file("model.gguf"));
  }

  test::TemporaryFolder work_;
};

void expect_equal(const RopeTable& a, const RopeTable& b) {
  EXPECT_NEAR(a.magnitude, b.magnitude, 1e-6 * a.magnitude);
  ASSERT_EQ(a.frequencies.size(), b.frequencies.size());
  for (size_t i = 0; i < a.frequencies.size(); ++i)
    EXPECT_NEAR(a.frequencies[i], b.frequencies[i], 2e-6 * a.frequencies[i]) << i;
}

TEST_P(GgufSource, TheConfigDescribesTheSameModel) {
  const CheckpointSource folder = CheckpointSource::open(work_.file("folder"));
  const CheckpointSource file = CheckpointSource::open(work_.file("model.gguf"));
  const ModelConfig a = parse_config(folder.config_json(), "folder");
  const ModelConfig b = parse_config(file.config_json(), "file");
  // Mistral's models with vision are Ministral 3 without what that adds.
  if (a.family != "mistral") {
    EXPECT_EQ(a.family, b.family);
  }
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.tied_head, b.tied_head);
  EXPECT_FLOAT_EQ(a.embedding_scale, b.embedding_scale);
  EXPECT_FLOAT_EQ(a.logit_scale, b.logit_scale);
  EXPECT_EQ(a.logit_cap, b.logit_cap);
  EXPECT_FLOAT_EQ(a.head_input.norm.eps, b.head_input.norm.eps);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    const AttentionDesc &x = a.layers[i].attention, &y = b.layers[i].attention;
    EXPECT_EQ(x.heads, y.heads);
    EXPECT_EQ(x.kv_heads, y.kv_heads);
    EXPECT_EQ(x.head_dim, y.head_dim);
    EXPECT_EQ(x.logit_cap, y.logit_cap);
    EXPECT_FLOAT_EQ(x.scale, y.scale);
    EXPECT_EQ(x.window, y.window);
    EXPECT_EQ(a.layers[i].mlp.width, b.layers[i].mlp.width);
    EXPECT_EQ(a.layers[i].mlp.function, b.layers[i].mlp.function);
    const ExpertsDesc &d = a.layers[i].experts, &e = b.layers[i].experts;
    EXPECT_EQ(d.count, e.count);
    EXPECT_EQ(d.chosen, e.chosen);
    EXPECT_EQ(d.width, e.width);
    EXPECT_EQ(d.routing.sigmoid, e.routing.sigmoid);
    EXPECT_EQ(d.routing.normalized, e.routing.normalized);
    EXPECT_EQ(d.routing.groups_chosen, e.routing.groups_chosen);
    EXPECT_FLOAT_EQ(d.routing.scale, e.routing.scale);
    EXPECT_EQ(a.layers[i].delta_net.taps, b.layers[i].delta_net.taps);
    EXPECT_EQ(x.rope < 0, y.rope < 0);
    if (x.rope < 0 || y.rope < 0 || !x.present()) continue;
    for (const int64_t positions : {int64_t{16}, a.max_positions}) {
      expect_equal(rope_table(a.ropes[static_cast<size_t>(x.rope)], x.head_dim, positions),
                   rope_table(b.ropes[static_cast<size_t>(y.rope)], y.head_dim, positions));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufSource, testing::ValuesIn(test::gguf_recipes()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

class BadGguf : public testing::Test {
 protected:
  void SetUp() override {
    test::write_gguf_recipe("llama31-tiny", whole_);
    std::ifstream file(whole_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  std::string write(const std::string& bytes, const std::string& name = "model.gguf") const {
    const std::string path = folder_.file(name);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // Returns the file with the first `from` replaced by the equally long `to`.
  std::string changed(const std::string& from, const std::string& to) const {
    EXPECT_EQ(from.size(), to.size());
    std::string bytes = bytes_;
    const size_t place = bytes.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return bytes.replace(place, to.size(), to);
  }
  // Returns the file with the 32-bit number behind a key changed.
  std::string with_number(const std::string& key, uint32_t value) const {
    std::string bytes = bytes_;
    const size_t place = bytes.find(key);
    EXPECT_NE(place, std::string::npos) << key;
    for (size_t i = 0; i < 4; ++i)
      bytes[place + key.size() + 4 + i] = static_cast<char>(value >> 8 * i);
    return bytes;
  }
  static void expect_refused(const std::string& path, const std::vector<std::string>& parts) {
    try {
      CheckpointSource::open(path);
      ADD_FAILURE() << parts.front();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
      for (const std::string& part : parts)
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    }
  }

  static void expect_missing_file(const std::string& path) {
    try {
      CheckpointSource::open(path);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io) << e.what();
    }
  }

  test::TemporaryFolder folder_;
  const std::string whole_ = folder_.file("whole.gguf");
  std::string bytes_;
};

TEST_F(BadGguf, WhatDoesNotFitIsRefusedByName) {
  expect_refused(write(changed("llama.context_length", "llama.context_lengtx")),
                 {"model.gguf", "llama.context_length is missing"});
  expect_refused(write(changed("blk.0.attn_q.weight", "blk.0.attn_x.weight")),
                 {"model.gguf", "tensor blk.0.attn_x.weight"});
  expect_refused(write(changed("blk.0.attn_q.weight", "blk.1.attn_q.weight")), {"duplicate"});
  expect_refused(write(with_number("llama.attention.head_count", 0)),
                 {"llama.attention.head_count"});
  expect_refused(write(with_number("llama.attention.head_count_kv", 0xFFFFFFFF)),
                 {"num_key_value_heads"});
  expect_refused(write(with_number("llama.block_count", 0x7FFFFFFF)), {"llama.block_count"});
  expect_refused(write(with_number("llama.rope.dimension_count", 4096)),
                 {"llama.rope.dimension_count"});
}

TEST_F(BadGguf, AnUnknownArchitectureIsRefused) {
  std::string bytes = bytes_;
  const std::string key = "general.architecture";
  bytes.replace(bytes.find(key) + key.size() + 4 + 8, 5, "mamba");
  expect_refused(write(bytes), {"general.architecture", "\"mamba\" is not read", "qwen3"});
}

TEST_F(BadGguf, HeadsThatDoNotDivideTheRowsAreRefusedWhenTheyAreRead) {
  const std::string path = write(with_number("llama.attention.head_count", 5));
  try {
    CheckpointSource::open(path).load("model.layers.0.self_attn.q_proj.weight");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input) << e.what();
  }
}

TEST_F(BadGguf, ATruncatedFileIsRefusedWhereverItEnds) {
  for (size_t size = 0; size < bytes_.size(); size += 2999) {
    const std::string path = write(bytes_.substr(0, size));
    EXPECT_EQ(is_foreign_gguf(path), size >= 4) << size;
    EXPECT_THROW(open_gguf_checkpoint(path), Error) << size;
  }
}

// Changes a file of another model.
class BadModel : public BadGguf {
 protected:
  void expect_refused_if(const std::string& model,
                         const std::function<void(nlohmann::json&)>& change,
                         const std::vector<std::string>& parts) const {
    const std::string path = folder_.file("model.gguf");
    test::write_gguf_recipe(model, path, change);
    expect_refused(path, parts);
  }
  static std::function<void(nlohmann::json&)> with(const char* key, const char* type,
                                                   const nlohmann::json& value) {
    return [=](nlohmann::json& recipe) {
      for (nlohmann::json& entry : recipe["metadata"]) {
        if (entry[0] != key) continue;
        entry = {key, type, value};
        return;
      }
      recipe["metadata"].push_back({key, type, value});
    };
  }
};

TEST_F(BadModel, KeysThatChangeTheFunctionAreRefused) {
  expect_refused_if("qwen3-tiny", with("qwen3.logit_scale", "FLOAT32", 2),
                    {"qwen3.logit_scale", "is 2"});
  expect_refused_if("llama31-tiny", with("llama.attention.causal", "BOOL", false),
                    {"llama.attention.causal"});
  expect_refused_if("mixtral-tiny", with("llama.expert_gating_func", "UINT32", 2),
                    {"llama.expert_gating_func", "is 2, expected 1"});
  expect_refused_if("glm4-tiny", with("glm4.rope.dimension_sections", "INT32[]", {8, 12, 12, 0}),
                    {"glm4.rope.dimension_sections"});
  expect_refused_if("granite-yarn-tiny", with("granite.rope.scaling.finetuned", "BOOL", false),
                    {"granite.rope.scaling.finetuned"});
  expect_refused_if("granitemoe-tiny",
                    with("granitemoe.expert_shared_feed_forward_length", "UINT32", 8),
                    {"granitemoe.expert_shared_feed_forward_length"});
}

TEST_F(BadModel, NumbersThatAreNoneAreRefusedByTheirKeys) {
  // This sets the value of a float in the recipe: 1e999 is not JSON, so the file is modified
  // instead.
  const std::string path = folder_.file("model.gguf");
  constexpr std::string_view kKey = "llama.rope.freq_base";
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), -1e4F, 0.0F}) {
    test::write_gguf_recipe("llama31-tiny", path, with(kKey.data(), "FLOAT32", 500000));
    std::ifstream in(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const size_t place = bytes.find(kKey);
    ASSERT_NE(place, std::string::npos);
    std::memcpy(bytes.data() + place + kKey.size() + sizeof(uint32_t), &value, sizeof value);
    std::ofstream(path, std::ios::binary) << bytes;
    expect_refused(path, {std::string(kKey), "expected"});
  }
}

TEST_F(BadModel, CountsOfExpertsAndHeadsThatDoNotFitAreRefused) {
  for (const int count : {0, 3, 5, 1 << 20}) {
    expect_refused_if("olmoe-tiny", with("olmoe.expert_count", "UINT32", count), {"expert"});
  }
  expect_refused_if("olmoe-tiny", with("olmoe.expert_used_count", "UINT32", 7),
                    {"num_experts_per_tok"});
  expect_refused_if("gpt-oss-tiny",
                    with("gpt-oss.attention.sliding_window_pattern", "BOOL[]", {true}),
                    {"gpt-oss.attention.sliding_window_pattern", "each of 2 layers"});
  expect_refused_if("qwen35-tiny", with("qwen35.ssm.time_step_rank", "UINT32", 5),
                    {"qwen35.ssm.time_step_rank"});
  expect_refused_if("glm4-moe-tiny", with("glm4moe.nextn_predict_layers", "UINT32", 3),
                    {"glm4moe.nextn_predict_layers", "is 3 of 3 layers"});
}

TEST_F(BadModel, HeadsAndRatesOfDeltaNetsAreCheckedWhenTheyAreRead) {
  const auto load = [&](const std::function<void(nlohmann::json&)>& change,
                        const std::string& name) -> std::string {
    const std::string path = folder_.file("model.gguf");
    test::write_gguf_recipe("qwen35-tiny", path, change);
    try {
      CheckpointSource::open(path).load("model.layers.0.linear_attn." + name);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(load({}, "A_log"), "");
  EXPECT_NE(load(with("qwen35.ssm.inner_size", "UINT32", 64), "in_proj_z.weight").find("attn_gate"),
            std::string::npos);
  const auto positive = [](nlohmann::json& recipe) {
    for (nlohmann::json& tensor : recipe["tensors"])
      if (tensor["name"] == "blk.0.ssm_a") tensor["values"] = {-1, -2, 3, -1};
  };
  EXPECT_NE(load(positive, "A_log").find("blk.0.ssm_a: holds the rate 3"), std::string::npos);
}

TEST_F(BadModel, LayersThatGuessFurtherTokensAreLeftOutAndNamed) {
  const std::string path = folder_.file("model.gguf");
  test::write_gguf_recipe("glm4-moe-tiny", path, [](nlohmann::json& recipe) {
    for (const char* name : {"blk.2.attn_norm.weight", "blk.2.nextn.eh_proj.weight"})
      recipe["tensors"].push_back(
          {{"name", name}, {"type", "F32"}, {"dims", {1}}, {"values", {1}}});
  });
  const CheckpointSource source = CheckpointSource::open(path);
  ASSERT_EQ(source.notes().size(), 1u);
  EXPECT_NE(source.notes()[0].find("2 tensors that no text needs are left out"), std::string::npos);
  for (const std::string& name : source.names())
    EXPECT_EQ(name.find("layers.2."), std::string::npos) << name;
}

TEST_F(BadModel, KeysThatNoLayerReadsAreLeftOut) {
  const std::string path = folder_.file("model.gguf");
  test::write_gguf_recipe("gemma4-tiny", path, [](nlohmann::json& recipe) {
    for (const char* name : {"blk.2.attn_k.weight", "blk.3.attn_k_norm.weight"})
      recipe["tensors"].push_back(
          {{"name", name}, {"type", "F32"}, {"dims", {1}}, {"values", {1}}});
  });
  const CheckpointSource source = CheckpointSource::open(path);
  ASSERT_EQ(source.notes().size(), 1u);
  EXPECT_NE(source.notes()[0].find("2 tensors that no text needs are left out"), std::string::npos);
  EXPECT_FALSE(source.contains("model.layers.2.self_attn.k_proj.weight"));
  EXPECT_TRUE(source.contains("model.layers.1.self_attn.k_proj.weight"));
}

// Writes the tensors [begin, end) of a file as one of two files of a split model.
void write_part(const GgufContent& content, const std::string& bytes, const std::string& path,
                uint16_t number, size_t begin, size_t end) {
  GgufWriter writer(32);
  for (const GgufEntry& entry : content.metadata)
    if (entry.key != kGgufAlignmentKey && (number == 0 || entry.key == "general.architecture"))
      writer.set(entry.key, entry.value);
  writer.set("split.no", GgufValue::number<uint16_t>(number));
  writer.set("split.count", GgufValue::number<uint16_t>(2));
  for (size_t i = begin; i < end; ++i) {
    const GgufTensor& t = content.tensors[i];
    writer.add_tensor(t.name, static_cast<GgmlType>(t.type), t.dims);
  }
  writer.open(path);
  for (size_t i = begin; i < end; ++i) {
    const GgufTensor& t = content.tensors[i];
    writer.write(t.name, std::as_bytes(std::span(bytes)).subspan(t.offset, t.bytes));
  }
  writer.commit();
}

TEST_F(BadModel, TokensThatAreNotTheRowsOfTheEmbeddingAreRefused) {
  expect_refused_if("llama31-tiny", with("tokenizer.ggml.tokens", "STRING[]", {"a", "b"}),
                    {"tokenizer.ggml.tokens", "has 2 tokens, but token_embd.weight"});
}

TEST_F(BadGguf, ASplitModelIsReadFromItsFirstFile) {
  const GgufContent content = parse_gguf(std::as_bytes(std::span(bytes_)), "model");
  const size_t half = content.tensors.size() / 2, all = content.tensors.size();
  const std::string first = folder_.file("m-00001-of-00002.gguf");
  const std::string second = folder_.file("m-00002-of-00002.gguf");
  write_part(content, bytes_, first, 0, 0, half);
  expect_missing_file(first);
  write_part(content, bytes_, second, 1, half, all);
  CheckpointSource split = CheckpointSource::open(first);
  CheckpointSource whole = CheckpointSource::open(whole_);
  EXPECT_EQ(split.names(), whole.names());
  for (const std::string& name : whole.names())
    EXPECT_EQ(values(split, name), values(whole, name)) << name;
  expect_refused(second, {"m-00002-of-00002.gguf"});
  write_part(content, bytes_, first, 0, 0, 0);
  write_part(content, bytes_, second, 1, 0, all);
  CheckpointSource apart = CheckpointSource::open(first);
  EXPECT_EQ(apart.config_json(), whole.config_json());
  EXPECT_EQ(apart.names(), whole.names());
  write_part(content, bytes_, first, 0, 0, half);
  write_part(content, bytes_, second, 1, half - 1, all);
  expect_refused(first, {"two of its tensors"});
  std::filesystem::copy(first, folder_.file("other.gguf"));
  expect_refused(folder_.file("other.gguf"), {"-00001-of-00002.gguf"});
}

}  // namespace
}  // namespace walsh
