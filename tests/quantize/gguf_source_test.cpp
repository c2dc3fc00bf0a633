// Files that llama.cpp's converter made (tools/make_gguf_models.py) are the checkpoints they were
// made from.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "arch/rope.h"
#include "import/gguf_checkpoint.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "quantize/source/checkpoint_source.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::string folder_of(const std::string& name) {
  return WALSH_TEST_DATA "/models/" + name;
}

std::string file_of(const std::string& name) {
  return WALSH_TEST_DATA "/gguf/" + name + ".gguf";
}

std::vector<float> values(CheckpointSource& source, const std::string& name) {
  const Tensor tensor = source.load(name);
  std::vector<float> result(static_cast<size_t>(tensor.rows * tensor.cols));
  decode_rows(tensor, 0, tensor.rows, result.data());
  return result;
}

class GgufSource : public testing::TestWithParam<const char*> {};

TEST_P(GgufSource, EveryTensorIsThatOfTheCheckpoint) {
  CheckpointSource folder = CheckpointSource::open(folder_of(GetParam()));
  CheckpointSource file = CheckpointSource::open(file_of(GetParam()));
  const auto expected = folder.names(), found = file.names();
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()),
            std::set<std::string>(expected.begin(), expected.end()));
  for (const std::string& name : expected) {
    SCOPED_TRACE(name);
    const auto a = values(folder, name), b = values(file, name);
    ASSERT_EQ(a.size(), b.size());
    // Gains that have 1 added in the file lose what that sum does not hold.
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], 1.2e-7) << i;
  }
}

void expect_equal(const RopeTable& a, const RopeTable& b) {
  EXPECT_NEAR(a.magnitude, b.magnitude, 1e-6 * a.magnitude);
  ASSERT_EQ(a.frequencies.size(), b.frequencies.size());
  for (size_t i = 0; i < a.frequencies.size(); ++i)
    EXPECT_NEAR(a.frequencies[i], b.frequencies[i], 2e-6 * a.frequencies[i]) << i;
}

TEST_P(GgufSource, TheConfigDescribesTheSameModel) {
  const CheckpointSource folder = CheckpointSource::open(folder_of(GetParam()));
  const CheckpointSource file = CheckpointSource::open(file_of(GetParam()));
  const ModelConfig a = parse_config(folder.config_json(), "folder");
  const ModelConfig b = parse_config(file.config_json(), "file");
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.tied_head, b.tied_head);
  EXPECT_EQ(a.embedding_scale, b.embedding_scale);
  EXPECT_EQ(a.logit_cap, b.logit_cap);
  EXPECT_EQ(a.head_input.norm.eps, b.head_input.norm.eps);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    const AttentionDesc &x = a.layers[i].attention, &y = b.layers[i].attention;
    EXPECT_EQ(x.heads, y.heads);
    EXPECT_EQ(x.kv_heads, y.kv_heads);
    EXPECT_EQ(x.head_dim, y.head_dim);
    EXPECT_EQ(x.logit_cap, y.logit_cap);
    EXPECT_EQ(a.layers[i].mlp.width, b.layers[i].mlp.width);
    EXPECT_EQ(a.layers[i].mlp.function, b.layers[i].mlp.function);
    for (const int64_t positions : {int64_t{16}, a.max_positions}) {
      expect_equal(rope_table(a.ropes[static_cast<size_t>(x.rope)], x.head_dim, positions),
                   rope_table(b.ropes[static_cast<size_t>(y.rope)], y.head_dim, positions));
    }
    // The format cannot tell the scale of this model, which no published one has.
    if (std::string(GetParam()) != "gemma2-tiny") {
      EXPECT_EQ(x.scale, y.scale);
    }
    EXPECT_EQ(x.window, y.window);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufSource,
                         testing::Values("gemma2-tiny", "llama2-bias-tiny", "llama31-tiny",
                                         "phi3-long-tiny", "qwen2-tiny", "qwen3-tiny"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

class BadGguf : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "walsh-gguf-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::ifstream file(file_of("llama31-tiny"), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& bytes, const std::string& name = "model.gguf") const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // The file with the first `from` replaced by the equally long `to`.
  std::string changed(const std::string& from, const std::string& to) const {
    EXPECT_EQ(from.size(), to.size());
    std::string bytes = bytes_;
    const size_t place = bytes.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return bytes.replace(place, to.size(), to);
  }
  // With the 32-bit number behind a key changed.
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

  std::string folder_, bytes_;
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
  expect_refused(write(with_number("llama.block_count", 0x7FFFFFFF)), {"num_hidden_layers"});
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

// Writes the tensors [begin, end) of a file as one of two files of a split model.
void write_part(const GgufContent& content, const std::string& bytes, const std::string& path,
                uint16_t number, size_t begin, size_t end) {
  GgufWriter writer(32);
  for (const GgufEntry& entry : content.metadata)
    if (number == 0 || entry.key == "general.architecture") writer.set(entry.key, entry.value);
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

TEST_F(BadGguf, TokensThatAreNotTheRowsOfTheEmbeddingAreRefused) {
  GgufContent content = parse_gguf(std::as_bytes(std::span(bytes_)), "model");
  content.metadata.push_back({"tokenizer.ggml.tokens", GgufValue::texts({"a", "b"})});
  const std::string path = folder_ + "/model.gguf";
  write_part(content, bytes_, path, 0, 0, content.tensors.size());
  expect_refused(path, {"tokenizer.ggml.tokens", "has 2 tokens, but token_embd.weight"});
}

TEST_F(BadGguf, ASplitModelIsReadFromItsFirstFile) {
  const GgufContent content = parse_gguf(std::as_bytes(std::span(bytes_)), "model");
  const size_t half = content.tensors.size() / 2, all = content.tensors.size();
  const std::string first = folder_ + "/m-00001-of-00002.gguf";
  const std::string second = folder_ + "/m-00002-of-00002.gguf";
  write_part(content, bytes_, first, 0, 0, half);
  expect_missing_file(first);
  write_part(content, bytes_, second, 1, half, all);
  CheckpointSource split = CheckpointSource::open(first);
  CheckpointSource whole = CheckpointSource::open(file_of("llama31-tiny"));
  EXPECT_EQ(split.names(), whole.names());
  for (const std::string& name : whole.names())
    EXPECT_EQ(values(split, name), values(whole, name)) << name;
  expect_refused(second, {"m-00002-of-00002.gguf"});
  write_part(content, bytes_, second, 1, half - 1, all);
  expect_refused(first, {"two of its tensors"});
  std::filesystem::copy(first, folder_ + "/other.gguf");
  expect_refused(folder_ + "/other.gguf", {"-00001-of-00002.gguf"});
}

}  // namespace
}  // namespace walsh
