// Tests matrices as other tools store them when they quantize: tests/data/stored, which
// tools/make_stored_goldens.py writes with the values that the tools' own libraries decode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "arch/config_reader.h"
#include "temporary_folder.h"
#include "walsh/error.h"
#include "weights/checkpoint_source.h"

namespace walsh {
namespace {

using testing::HasSubstr;

const std::string kData = std::string(WALSH_TEST_DATA) + "/stored";
constexpr const char* kMatrix = "layer.up.weight";

CheckpointSource open_source(const std::string& folder, GgufCodes codes = GgufCodes::drop) {
  Checkpoint checkpoint = Checkpoint::open(folder);
  const Json config = Json::parse(checkpoint.config_json());
  ConfigReader reader(config, checkpoint.config_place());
  const StoredMethod stored = read_stored_method(reader);
  return {std::move(checkpoint), {}, stored, codes};
}

std::vector<float> values(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.rows * tensor.cols));
  decode_rows(tensor, 0, tensor.rows, out.data());
  return out;
}

// Holds a safetensors file whose tensors can be changed.
class Altered {
 public:
  explicit Altered(const std::string& folder) {
    std::ifstream in(folder + "/model.safetensors", std::ios::binary);
    uint64_t length = 0;
    in.read(reinterpret_cast<char*>(&length), 8);
    std::string text(length, ' ');
    in.read(text.data(), static_cast<std::streamsize>(length));
    const std::string data{std::istreambuf_iterator<char>(in), {}};
    const nlohmann::json header = nlohmann::json::parse(text);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      tensors[name] = {entry["dtype"], entry["shape"], data.substr(begin, end - begin)};
    }
    config = nlohmann::json::parse(std::ifstream(folder + "/config.json"));
  }

  void write(const test::TemporaryFolder& work) const {
    nlohmann::json header;
    std::string data;
    for (const auto& [name, tensor] : tensors) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
      data += tensor.data;
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream(work.file("config.json")) << config.dump();
    std::ofstream out(work.file("model.safetensors"), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << text << data;
  }
  // Returns the values of the matrix.
  std::vector<float> read() const {
    test::TemporaryFolder work;
    write(work);
    return values(open_source(work.path()).load(kMatrix));
  }

  void expect_refused(const std::string& part, const std::string& what) const {
    try {
      read();
      ADD_FAILURE() << what << ": accepted, expected an error with: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input) << what;
      EXPECT_THAT(e.what(), HasSubstr(part)) << what;
    }
  }

  struct Stored {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string data;
  };
  Stored& operator[](const std::string& ending) { return tensors.at("layer.up." + ending); }

  std::map<std::string, Stored> tensors;
  nlohmann::json config;
};

class StoredMatrices : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return kData + "/" + GetParam(); }
};

TEST_P(StoredMatrices, HaveTheValuesThatTheirToolDecodes) {
  CheckpointSource source = open_source(folder());
  const Tensor tensor = source.load(kMatrix);
  const std::vector<float> found = values(tensor),
                           expected = values(source.load("expected.weight"));
  EXPECT_EQ(tensor.format, &source.format_of(kMatrix));
  EXPECT_TRUE(tensor.format->dense);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 2e-7 * std::fabs(expected[i])) << i;
  EXPECT_THAT(source.names(), testing::UnorderedElementsAre(kMatrix, "expected.weight"));
}

TEST_P(StoredMatrices, AreCodesWhereAFormatHoldsThemBitForBit) {
  CheckpointSource source = open_source(folder(), GgufCodes::keep), dense = open_source(folder());
  const nlohmann::json config = nlohmann::json::parse(std::ifstream(folder() + "/config.json"));
  const Tensor tensor = source.load(kMatrix);
  if (config["codes"].is_null()) {
    EXPECT_TRUE(tensor.format->dense) << tensor.format->name;
  } else {
    EXPECT_EQ(tensor.format->name, config["codes"].get<std::string>());
  }
  EXPECT_EQ(values(tensor), values(dense.load(kMatrix)));
}

// Files from elsewhere may be damaged or hostile.
TEST_P(StoredMatrices, WithoutATensorOrWithOneOfAnotherShapeAreRefused) {
  const Altered original(folder());
  for (const auto& [name, tensor] : original.tensors) {
    if (name == "expected.weight") continue;
    Altered altered = original;
    altered.tensors.erase(name);
    const bool optional =
        name.ends_with("g_idx") || name.ends_with("zero_point") || name.ends_with("weight_format");
    if (!optional) {
      EXPECT_THROW(altered.read(), Error) << name << " is missing";
    }
    // Codes without a shape beside them may have any; bytes of 4-bit floats may have any type.
    const bool codes = name == kMatrix, bytes = codes && tensor.dtype == "U8";
    for (const size_t dimension : {size_t{0}, size_t{1}}) {
      if (dimension >= tensor.shape.size() || (codes && !bytes)) continue;
      altered = original;
      Altered::Stored& shorter = altered.tensors[name];
      const auto size = static_cast<size_t>(shorter.shape[dimension]--);
      shorter.data.resize(shorter.data.size() / size * (size - 1));
      EXPECT_THROW(altered.read(), Error) << name << " without its last part";
    }
    if (bytes || name.ends_with("weight_format")) continue;
    altered = original;
    altered.tensors[name].dtype = "F64";
    altered.tensors[name].shape = {static_cast<int64_t>(tensor.data.size() / 8)};
    altered.tensors[name].data.resize(tensor.data.size() / 8 * 8);
    EXPECT_THROW(altered.read(), Error) << name << " of another type";
  }
}

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData))
    names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, StoredMatrices, testing::ValuesIn(folders()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(StoredMatrix, IndicesOfGroupsThatAreNotThereAreRefused) {
  for (const int32_t group : {3, -1, 1 << 30}) {
    Altered altered(kData + "/gptq-int4-ordered");
    std::memcpy(altered["g_idx"].data.data() + 4, &group, sizeof group);
    altered.expect_refused("g_idx: holds the group " + std::to_string(group) + ", expected 0 to 2",
                           std::to_string(group));
  }
}

TEST(StoredMatrix, OptionsThatAreNotUnderstoodAreRefusedByName) {
  const auto refused = [](const char* folder, const char* key, const nlohmann::json& value) {
    Altered altered(kData + "/" + folder);
    altered.config["quantization_config"][key] = value;
    altered.expect_refused(key, std::string(folder) + " " + key);
  };
  for (const char* folder : {"gptq-int4", "awq-int4"}) {
    refused(folder, "group_size", 0);
    refused(folder, "bits", 5);
    refused(folder, "some_future_switch", 1);
    refused(folder, "pack_dtype", "int64");
  }
  refused("gptq-int4", "checkpoint_format", "marlin");
  refused("awq-int4", "version", "gemv");
  refused("awq-int4", "zero_point", false);
  refused("ct-int4", "format", "marlin-24");
  refused("ct-int4", "sparsity_config", {{"format", "sparse-24-bitmask"}});
  refused("ct-int4", "transform_config", {{"config_groups", {{"R1", 1}}}});
  refused("ct-int4", "config_groups", "W4A16");
  refused("bnb-nf4", "some_future_switch", 1);

  Altered altered(kData + "/ct-int4");
  altered.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 0;
  altered.expect_refused("group_0: weights: 'group_size'", "a group of no columns");
}

TEST(StoredMatrix, TheStateOf4BitsIsChecked) {
  const auto refused = [](const std::string& text, const std::string& part) {
    Altered altered(kData + "/bnb-nf4");
    Altered::Stored& state = altered["weight.quant_state.bitsandbytes__nf4"];
    state.data = text;
    state.shape = {static_cast<int64_t>(text.size())};
    altered.expect_refused(part, text);
  };
  refused("{", "quant_state");
  refused(R"({"shape": [16, 96], "blocksize": 0, "dtype": "float32"})", "blocksize");
  refused(R"({"shape": [16], "blocksize": 64, "dtype": "float32"})", "shape");
  refused(R"({"shape": [2147483647, 2147483647], "blocksize": 64, "dtype": "float32"})", "shape");
  refused(R"({"shape": [16, 98], "blocksize": 64, "dtype": "float32"})", "bytes of a matrix");
  refused(R"({"shape": [16, 96], "blocksize": 64, "dtype": "int8"})", "dtype int8");
  refused(R"({"shape": [16, 96], "blocksize": 32, "dtype": "float32"})", "absmax");
}

TEST(StoredMatrix, OffsetsOfNestedScalesThatNoFloatHoldsAreRefused) {
  Altered altered(kData + "/bnb-nf4-nested");
  Altered::Stored& state = altered["weight.quant_state.bitsandbytes__nf4"];
  auto json = nlohmann::json::parse(state.data);
  json["nested_offset"] = 1e300;
  state.data = json.dump();
  state.shape = {static_cast<int64_t>(state.data.size())};
  altered.expect_refused("'nested_offset' is too large", "1e300");
}

// Tools for GPTQ write biases of zeros to models that have none.
TEST(StoredMatrix, BiasesOfZerosAreNotSeen) {
  const std::string name = "layer.up.bias";
  for (const char value : {'\0', '\1'}) {
    test::TemporaryFolder work;
    Altered altered(kData + "/gptq-int4");
    altered.tensors[name] = {"F16", {16}, std::string(32, value)};
    altered.write(work);
    const auto names = open_source(work.path()).names();
    EXPECT_EQ(std::ranges::count(names, name), value) << "of the value " << int{value};
  }
}

}  // namespace
}  // namespace walsh
