// Tests names and slices of tensors that no small model of llama.cpp's converter contains.
#include "import/gguf_places.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "walsh/error.h"

namespace walsh {
namespace {

class GgufPlaces : public testing::Test {
 protected:
  void set(const std::string& key, GgufValue value) {
    content_.metadata_index[key] = content_.metadata.size();
    content_.metadata.push_back({key, std::move(value), 0});
  }
  // Describes a model of two layers with four heads of 8, and four experts.
  void describe(const std::string& architecture) {
    set("general.architecture", GgufValue::text(architecture));
    for (const auto& [key, value] :
         std::vector<std::pair<const char*, uint32_t>>{{".block_count", 3},
                                                       {".nextn_predict_layers", 1},
                                                       {".expert_count", 4},
                                                       {".embedding_length", 32},
                                                       {".attention.head_count", 4},
                                                       {".attention.head_count_kv", 2}})
      set(architecture + key, GgufValue::number<uint32_t>(value));
  }
  // Returns the places of a tensor of F32.
  std::vector<GgufPlace> places(const std::string& name, std::vector<uint64_t> dims,
                                uint32_t type = 0) const {
    const GgufMetadata metadata(content_, "model.gguf");
    const uint64_t bytes = gguf_tensor_bytes(type, dims, name);
    const GgufTensor tensor = {name, std::move(dims), type, 0, bytes};
    return gguf_places(metadata, gguf_family(metadata), tensor, "model.gguf");
  }
  std::string refusal(const std::string& name, const std::vector<uint64_t>& dims,
                      uint32_t type = 0) const {
    try {
      places(name, dims, type);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      return e.what();
    }
    return "";
  }

  GgufContent content_;
};

TEST_F(GgufPlaces, ExpertsOfOldFilesAreTensorsOfTheirOwn) {
  describe("llama");
  const auto found = places("blk.1.ffn_up.3.weight", {32, 8});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "model.layers.1.block_sparse_moe.experts.3.w3.weight");
  EXPECT_EQ(found[0].shape, (std::vector<int64_t>{8, 32}));
  for (const char* name : {"blk.1.ffn_up.x.weight", "blk.1.ffn_up..weight", "blk.1.attn_q.3.weight",
                           "blk.1.ffn_up.1234567.weight", "blk..ffn_up.weight",
                           "blk.-1.ffn_up.weight", "blk.1ffn_up.weight", "blk.1", "x"})
    EXPECT_NE(refusal(name, {32, 8}).find("is not known for architecture"), std::string::npos)
        << name;
}

TEST_F(GgufPlaces, GatesAndUpsOfAllExpertsAreHalves) {
  describe("qwen3moe");
  const auto found = places("blk.0.ffn_gate_up_exps.weight", {32, 6, 4});
  ASSERT_EQ(found.size(), 8u);
  EXPECT_EQ(found[5].name, "model.layers.0.mlp.experts.2.up_proj.weight");
  EXPECT_EQ(found[5].shape, (std::vector<int64_t>{3, 32}));
  EXPECT_EQ(found[5].bytes, 3u * 32 * 4);
  EXPECT_EQ(found[5].offset, 5u * 3 * 32 * 4);
  EXPECT_NE(refusal("blk.0.ffn_gate_up_exps.weight", {32, 5, 4}).find("even"), std::string::npos);
  EXPECT_NE(refusal("blk.0.ffn_gate_up_exps.weight", {32, 6, 3}).find("4 experts"),
            std::string::npos);
  EXPECT_NE(refusal("blk.0.ffn_down_exps.weight", {32}).find("4 experts"), std::string::npos);
}

TEST_F(GgufPlaces, QueriesKeysAndValuesMayBeOneTensor) {
  describe("llama");
  const auto found = places("blk.0.attn_qkv.weight", {32, 64}, 8);  // Q8_0
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].name, "model.layers.0.self_attn.k_proj.weight");
  EXPECT_EQ(found[1].shape, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(found[1].offset, 32u * 34);
  EXPECT_EQ(found[2].offset + found[2].bytes, 64u * 34);
  EXPECT_EQ(places("blk.0.attn_qkv.bias", {64})[2].name, "model.layers.0.self_attn.v_proj.bias");
  EXPECT_NE(refusal("blk.0.attn_qkv.weight", {32, 63}).find("expected 64"), std::string::npos);
  EXPECT_NE(refusal("blk.0.attn_qkv.bias", {64}, 8).find("expected 64"), std::string::npos);
}

TEST_F(GgufPlaces, LayersBehindTheLastAreLeftOutIfTheFileSaysSo) {
  describe("qwen3");
  EXPECT_TRUE(places("blk.2.nextn.eh_proj.weight", {64, 32}).empty());
  EXPECT_NE(refusal("blk.1.nextn.eh_proj.weight", {64, 32}), "");
  EXPECT_NE(refusal("blk.3.nextn.eh_proj.weight", {64, 32}), "");
}

}  // namespace
}  // namespace walsh
