// A compressed model as a Hugging Face folder has the same tensors as a file, however the
// checkpoint combines them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "codec/retired.h"
#include "codec/tensor.h"
#include "io/io_testing.h"
#include "quantize/pipeline/open.h"
#include "quantize/tiny_pipeline.h"
#include "threads.h"
#include "walsh/error.h"
#include "weights/folder_config.h"
#include "weights/walsh_file.h"
#include "weights/walsh_folder.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr OutputOptions kFolder = {.kind = OutputKind::folder};

std::vector<std::string> small_models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(WALSH_TEST_DATA "/models"))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> arrays_of(const Tensor& tensor) {
  std::vector<std::string> result;
  const auto add = [&](std::span<const std::byte> bytes) {
    result.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  if (tensor.format->dense) add(tensor.data);
  for (int pass = 0; pass < tensor.format->passes; ++pass)
    for (const PassField& f : pass_fields(*tensor.format, pass, tensor.rows, tensor.cols))
      add(tensor.pass[pass].*f.array);
  return result;
}

class Folder : public testing::Test {
 protected:
  Folder() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    place_ = fs::temp_directory_path() / ("walsh_folder_" + std::to_string(getpid()) + "_" +
                                          std::to_string(std::hash<std::string>()(name)));
    fs::remove_all(place_);
    fs::create_directories(place_);
  }
  ~Folder() override { fs::remove_all(place_); }

  std::string file(const std::string& name) const { return place_ / name; }
  std::string write(const std::string& model, const Recipe& recipe, const OutputOptions& options) {
    const std::string path = file(options.kind == OutputKind::folder ? "folder" : "out.gguf");
    quantize_to_file(*open_compressor(model, recipe, pool_), path, {}, {}, options);
    return path;
  }
  std::string failure(const std::string& model, const Recipe& recipe) {
    try {
      write(model, recipe, kFolder);
    } catch (const Error& e) {
      EXPECT_FALSE(fs::exists(file("folder")));
      return e.what();
    }
    return "";
  }
  // Every tensor of the file is in the folder.
  void expect_same(const std::string& stored, const std::string& folder) {
    const auto expected = WalshFile::open(stored);
    const auto found = open_source(folder, nullptr, pool_);
    for (const std::string& name : expected->names()) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(found->contains(name));
      const StoredForm a = expected->form_of(name), b = found->form_of(name);
      EXPECT_EQ(a.format->name, b.format->name);
      const Tensor x = expected->load(name), y = found->load(name);
      ASSERT_EQ(x.rows, y.rows);
      ASSERT_EQ(x.cols, y.cols);
      for (int pass = 0; pass < x.format->passes; ++pass)
        EXPECT_TRUE(a.rotation[pass] == b.rotation[pass] && x.rotation[pass] == y.rotation[pass]);
      EXPECT_TRUE(arrays_of(x) == arrays_of(y));
    }
  }

  static std::string tiny() { return WALSH_SOURCE_DIR "/models/walsh-tiny-13m"; }

  fs::path place_;
  ThreadPool pool_{test::kThreads};
};

class FolderOfAFamily : public Folder, public testing::WithParamInterface<std::string> {};

TEST_P(FolderOfAFamily, HasTheTensorsOfTheFile) {
  const std::string model = std::string(WALSH_TEST_DATA "/models/") + GetParam();
  const Recipe recipe = recipe_of("tq3");
  expect_same(write(model, recipe, {}), write(model, recipe, kFolder));
}

INSTANTIATE_TEST_SUITE_P(Models, FolderOfAFamily, testing::ValuesIn(small_models()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !isalnum(c); }, '_');
                           return name;
                         });

TEST_F(Folder, HasAnyFormat) {
  const std::string model = WALSH_TEST_DATA "/models/qwen3-tiny";
  for (const char* type : {"tq4+2", "tc3:h", "pq3", "q8_0"}) {
    SCOPED_TRACE(type);
    const Recipe recipe = recipe_of(type);
    expect_same(write(model, recipe, {}), write(model, recipe, kFolder));
    fs::remove_all(file("folder"));
  }
}

// Trellis codes of one weight per step had the name of their rate once; arrays have equal sizes.
TEST_F(Folder, OfRetiredCodesIsLoadedInEightBitsWithANote) {
  const std::string model = WALSH_TEST_DATA "/models/qwen3-tiny";
  const std::string folder = write(model, recipe_of("tc3:h"), kFolder);
  std::string config = slurp(folder + "/config.json");
  for (size_t at; (at = config.find("tc3:h")) != std::string::npos;)
    config.replace(at, 5, "tc3");
  spill(folder + "/config.json", config);
  const auto opened = open_source(folder, nullptr, pool_);
  EXPECT_THAT(opened->notes(), testing::Contains(HasSubstr("tc3:L14 weights")));
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const Tensor tensor = opened->load(name);
  EXPECT_EQ(tensor.format, &opened->format_of(name));
  EXPECT_EQ(tensor.format, opened->form_of(name).format);
  EXPECT_EQ(tensor.format, &loaded_format(stored_format("tc3:L14")));
}

// transformers saves the text part of a model with vision under the names of the whole; what it
// has coded of other parts is in the folder, too.
TEST_F(Folder, MayHaveNamesOfTheWholeModelAndPartsThatAreLeftOut) {
  const std::string model = WALSH_TEST_DATA "/models/qwen35-tiny";
  const std::string stored = write(model, recipe_of("tq3"), {});
  const std::string folder = write(model, recipe_of("tq3"), kFolder);
  const auto in_whole = [](const nlohmann::json& object) {
    nlohmann::json renamed = nlohmann::json::object();
    for (const auto& [name, value] : object.items())
      renamed[name.starts_with("model.") ? "model.language_model." + name.substr(6) : name] = value;
    return renamed;
  };
  std::string file = slurp(folder + "/model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof size);
  nlohmann::json header = in_whole(nlohmann::json::parse(file.substr(8, size)));
  std::string values = file.substr(8 + size);
  nlohmann::json config = nlohmann::json::parse(slurp(folder + "/config.json"));
  nlohmann::json& modules = config["quantization_config"]["modules"];
  modules = in_whole(modules);
  ASSERT_FALSE(modules.empty());
  const Rotation rotation = {RotationKind::hadamard, 128, 7, true};
  const StoredModule form = {&get_format("tq3"), 4, 128, {rotation, kNoRotation}};
  modules.update(nlohmann::json::parse(modules_json({{"mtp.up", form}}).dump()));
  for (const ArraySpec& spec : array_specs(*form.format, form.rows, form.cols)) {
    header["mtp.up." + std::string(spec.suffix)] = {
        {"dtype", "U8"},
        {"shape", {spec.bytes}},
        {"data_offsets", {values.size(), values.size() + spec.bytes}}};
    values.resize(values.size() + spec.bytes);
  }
  const std::string head = header.dump();
  size = head.size();
  file.replace(0, sizeof size, reinterpret_cast<const char*>(&size), sizeof size);
  spill(folder + "/model.safetensors", file.substr(0, sizeof size) + head + values);
  spill(folder + "/config.json", config.dump());
  expect_same(stored, folder);
  EXPECT_EQ(open_source(folder, nullptr, pool_)->names().size(),
            WalshFile::open(stored)->names().size());
}

TEST_F(Folder, IsCutIntoShardsThatAnIndexLists) {
  const Recipe recipe = recipe_of("tq3");
  const auto predicted = predict(*open_compressor(tiny(), recipe, pool_), kFolder).file_bytes;
  const std::string folder =
      write(tiny(), recipe, {.kind = OutputKind::folder, .shard_bytes = 7'000'000});
  const auto index = nlohmann::json::parse(slurp(folder + "/model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(folder + "/model-00002-of-00002.safetensors"));
  EXPECT_EQ(index["weight_map"]["model.norm.weight"], "model-00002-of-00002.safetensors");
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(predicted), 4096);
  EXPECT_EQ(slurp(folder + "/tokenizer.json"), slurp(tiny() + "/tokenizer.json"));
  expect_same(write(tiny(), recipe, {}), folder);
}

TEST_F(Folder, WithoutCodesIsAnOrdinaryCheckpoint) {
  const std::string folder = write(tiny(), recipe_of("f16"), kFolder);
  EXPECT_FALSE(is_walsh_folder(folder));
  expect_same(write(tiny(), recipe_of("f16"), {}), folder);
}

TEST_F(Folder, IsNotWrittenOverAndLeavesNothingBehind) {
  fs::create_directories(file("folder"));
  const Recipe recipe = recipe_of("tq3");
  EXPECT_THROW(write(tiny(), recipe, kFolder), Error);
  fs::remove_all(file("folder"));
  const auto stop = [](const QuantizeProgress& p) {
    if (p.index == 5) throw Error(ErrorCode::interrupted, "", "stopped");
  };
  EXPECT_THROW(
      quantize_to_file(*open_compressor(tiny(), recipe, pool_), file("folder"), stop, {}, kFolder),
      Error);
  EXPECT_TRUE(fs::is_empty(place_));
}

TEST_F(Folder, ErrorsNameItAndNotTheFolderThatItIsMadeIn) {
  const std::string model = WALSH_TEST_DATA "/models/llama31-tiny";
  const std::string weights = write(model, recipe_of("tq3"), kFolder) + "/model.safetensors";
  for (const rlim_t room : {rlim_t{4096}, rlim_t{fs::file_size(weights) - 1}}) {
    fs::remove_all(file("folder"));
    const testing::FileSizeLimit limit(room);
    const std::string text = failure(model, recipe_of("tq3"));
    EXPECT_TRUE(text.starts_with(file("folder") + "/model.safetensors: cannot ")) << text;
  }
  // There is a file beside the weights.
  const std::string copy = file("copy");
  fs::copy(model, copy);
  spill(copy + "/README.md", std::string(1'000'000, 'x'));
  fs::remove_all(file("folder"));
  const testing::FileSizeLimit limit(999'999);
  const std::string text = failure(copy, recipe_of("tq3"));
  EXPECT_TRUE(text.starts_with(file("folder") + "/README.md: cannot ")) << text;
}

TEST_F(Folder, RefusesWhatItHasNoPlaceFor) {
  Recipe folded = recipe_of("tq3"), embedded = recipe_of("tq3");
  folded.rotate = RotateAt::residual;
  embedded.embed_type = &get_format("q8_0");
  EXPECT_THAT(failure(tiny(), folded), HasSubstr("--rotate"));
  EXPECT_THAT(failure(tiny(), embedded), HasSubstr("--embed-type"));
  const std::string fused = WALSH_TEST_DATA "/models/phi3-tiny";
  EXPECT_THAT(failure(fused, recipe_of("tc3:h")), HasSubstr("fused"));
  Recipe mixed = recipe_of("tq3");
  mixed.rules.push_back(parse_override("re:layers\\.0\\.self_attn\\.k_proj=tq4"));
  EXPECT_THAT(failure(fused, mixed), HasSubstr("a rule must take all parts"));
}

TEST_F(Folder, IsNotCodedAgain) {
  const std::string folder = write(tiny(), recipe_of("tq3"), kFolder);
  try {
    open_compressor(folder, recipe_of("tq3"), pool_);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_THAT(e.what(), HasSubstr("coded already"));
  }
}

// Changes one thing of the config; the error names it.
class SpoiltFolder : public Folder {
 protected:
  template <typename Change>
  std::string spoil(const Change& change) {
    const std::string config = folder() + "/config.json";
    nlohmann::json json = nlohmann::json::parse(original_);
    change(json["quantization_config"]);
    spill(config, json.dump());
    try {
      open_source(folder(), nullptr, pool_)->load("model.layers.0.mlp.down_proj.weight");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      return e.what();
    }
    return "";
  }
  std::string folder() {
    if (original_.empty()) {
      write(tiny(), recipe_of("tq3"), kFolder);
      original_ = slurp(file("folder") + "/config.json");
    }
    return file("folder");
  }
  std::string original_;
};

TEST_F(SpoiltFolder, IsRefusedByName) {
  folder();
  const char* name = "model.layers.0.mlp.down_proj";
  const auto module = [&](const char* key, const nlohmann::json& value) {
    return spoil([&](nlohmann::json& config) { config["modules"][name][key] = value; });
  };
  EXPECT_EQ(spoil([](nlohmann::json&) {}), "");
  EXPECT_THAT(spoil([](nlohmann::json& c) { c["format_version"] = 2; }), HasSubstr("reads up to"));
  EXPECT_THAT(spoil([](nlohmann::json& c) { c["modules"] = 3; }), HasSubstr("modules"));
  EXPECT_THAT(spoil([](nlohmann::json& c) { c["modules"]["absent"] = c["modules"].front(); }),
              HasSubstr("absent.codes"));
  EXPECT_THAT(module("type", "tq9"), HasSubstr(name));
  EXPECT_THAT(module("type", "bf16"), HasSubstr("no code"));
  EXPECT_THAT(module("type", "tq4"), HasSubstr("expected"));
  EXPECT_THAT(module("shape", {384, -1}), HasSubstr("shape"));
  EXPECT_THAT(module("shape", {int64_t{1} << 31, int64_t{1} << 31}), HasSubstr("expected"));
  EXPECT_THAT(module("rotation", nlohmann::json::array()), HasSubstr("rotation"));
  EXPECT_THAT(module("rotation", {{"hadamard", 48, 1, true}}), HasSubstr("rotation"));
  EXPECT_THAT(module("rotation", {{"spin", 128, 1, true}}), HasSubstr(name));
}

TEST_F(Folder, KindsOfOutputHaveNames) {
  EXPECT_EQ(parse_output_kind("hf"), OutputKind::folder);
  EXPECT_EQ(parse_output_kind("gguf"), OutputKind::file);
  EXPECT_THROW(parse_output_kind("onnx"), Error);
}

}  // namespace
}  // namespace walsh
