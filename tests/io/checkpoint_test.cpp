#include "io/checkpoint.h"

#include "io_testing.h"

namespace walsh {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

// Makes a safetensors file with tensors (BF16 or F32) that are filled with their letter.
std::string shard(const std::vector<std::string>& names, const std::string& dtype = "BF16") {
  const int width = dtype == "F32" ? 4 : 2;
  std::string header = "{", data;
  for (size_t i = 0; i < names.size(); ++i) {
    header += (i > 0 ? ",\"" : "\"") + names[i] + R"(":{"dtype":")" + dtype +
              R"(","shape":[2,3],"data_offsets":[)" + std::to_string(data.size()) + ",";
    data.append(static_cast<size_t>(6 * width), names[i].back());
    header += std::to_string(data.size()) + "]}";
  }
  header += "}";
  std::string file;
  testing::append_number<uint64_t>(file, header.size());
  return file + header + data;
}

void expect_refused(const TemporaryFolder& folder, const std::vector<std::string>& parts) {
  expect_error([&] { Checkpoint::open(folder.path()); }, ErrorCode::bad_input, parts);
}

void write_index(const TemporaryFolder& folder, const std::string& map) {
  folder.write("model.safetensors.index.json",
               R"({"metadata":{"total_size":1},"weight_map":)" + map + "}");
}

TEST(Checkpoint, OpensASingleFile) {
  TemporaryFolder folder;
  folder.write("config.json", "{\"a\":1}");
  folder.write("model.safetensors", shard({"x", "y"}, "F32"));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  const TensorInfo* y = checkpoint.find("y");
  ASSERT_NE(y, nullptr);
  EXPECT_EQ(y->dtype(), DType::f32);
  EXPECT_EQ(y->elements(), 6);
  EXPECT_EQ(y->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(as_text(checkpoint.data(*y)), std::string(24, 'y'));
  checkpoint.drop(*y);
  EXPECT_EQ(as_text(checkpoint.data(*y)), std::string(24, 'y'));
  EXPECT_EQ(checkpoint.find("z"), nullptr);
  EXPECT_EQ(checkpoint.config_json(), "{\"a\":1}");
  EXPECT_EQ(checkpoint.tokenizer_json(), "");
  EXPECT_EQ(checkpoint.tokenizer_config_json(), "");
  EXPECT_EQ(checkpoint.generation_config_json(), "");
}

TEST(Checkpoint, TakesInfinityInAConfigAsTransformers5WritesIt) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"a": [0.0, Infinity], "b": "Infinity \" Infinity"})");
  folder.write("model.safetensors", shard({"x"}, "F32"));
  EXPECT_EQ(Checkpoint::open(folder.path()).config_json(),
            R"({"a": [0.0, {"__float__": "Infinity"}], "b": "Infinity \" Infinity"})");
}

TEST(Checkpoint, CountsTheElementsOfAHugeEmptyShape) {
  TemporaryFolder folder;
  folder.write("config.json", "{}");
  const std::string header =
      R"({"x":{"dtype":"F32","shape":[4611686018427387904,3,0],"data_offsets":[0,0]}})";
  std::string file;
  testing::append_number<uint64_t>(file, header.size());
  folder.write("model.safetensors", file + header);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  ASSERT_NE(checkpoint.find("x"), nullptr);
  EXPECT_EQ(checkpoint.find("x")->elements(), 0);
}

TEST(Checkpoint, OpensShardsInTheOrderOfTheirNames) {
  TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("tokenizer.json", "T");
  folder.write("tokenizer_config.json", "C");
  folder.write("generation_config.json", "G");
  folder.write("m-2.safetensors", shard({"a", "b"}));
  folder.write("m-1.safetensors", shard({"c"}, "F16"));
  write_index(folder, R"({"a":"m-2.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"})");
  const Checkpoint moved = Checkpoint::open(folder.path());
  ASSERT_EQ(moved.tensors().size(), 3u);
  EXPECT_EQ(moved.tensors()[0].name, "c");
  EXPECT_EQ(moved.tensors()[0].dtype(), DType::f16);
  EXPECT_EQ(moved.tensors()[1].name, "a");
  EXPECT_EQ(moved.tensors()[1].file, folder.file("m-2.safetensors"));
  EXPECT_EQ(as_text(moved.data(*moved.find("b"))), std::string(12, 'b'));
  EXPECT_EQ(moved.tokenizer_json(), "T");
  EXPECT_EQ(moved.tokenizer_config_json(), "C");
  EXPECT_EQ(moved.generation_config_json(), "G");
}

TEST(Checkpoint, OtherDtypesAreRefusedOnlyWhenUsed) {
  TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("model.safetensors", shard({"x"}, "I16"));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  expect_error([&] { checkpoint.tensors()[0].dtype(); }, ErrorCode::bad_input,
               {"model.safetensors", "tensor x", "I16", "F32, F16 or BF16"});
}

TEST(Checkpoint, ReportsWhatIsMissing) {
  TemporaryFolder folder;
  expect_error([&] { Checkpoint::open(folder.file("absent")); }, ErrorCode::io,
               {"absent", "No such file"});
  expect_refused(folder, {folder.path(), "no config.json"});
  folder.write("config.json", "{}");
  expect_refused(folder, {"neither model.safetensors nor model.safetensors.index.json"});
  expect_error([&] { Checkpoint::open(folder.file("config.json")); }, ErrorCode::bad_input,
               {"is not a folder"});
}

TEST(Checkpoint, RefusesEmptyFilesThatItCouldDoWithout) {
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    TemporaryFolder folder;
    folder.write("config.json", "{}");
    folder.write("model.safetensors", shard({"x"}));
    folder.write("chat_template.jinja", "");
    EXPECT_EQ(Checkpoint::open(folder.path()).tokenizer_config_json(), "");
    folder.write(name, "");
    expect_refused(folder, {folder.file(name), "is empty"});
  }
}

TEST(Checkpoint, RefusesPickledCheckpointsWithAdvice) {
  for (const char* name : {"pytorch_model.bin", "consolidated.00.pth", "model.pt"}) {
    TemporaryFolder folder;
    folder.write("config.json", "{}");
    folder.write(name, "\x80\x02");
    expect_refused(folder, {name, "pickled", "convert it to safetensors"});
  }
}

TEST(Checkpoint, NamesAMissingShard) {
  TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("m-1.safetensors", shard({"a"}));
  write_index(folder, R"({"a":"m-1.safetensors","b":"m-2.safetensors"})");
  expect_refused(folder, {folder.file("m-2.safetensors"), "shard is missing"});
}

TEST(Checkpoint, LinksThatLeadNowhereAreNamed) {
  TemporaryFolder folder;
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "model.safetensors.index.json", "model.safetensors"}) {
    for (const char* target : {"nowhere", name}) {  // the second one is a loop
      SCOPED_TRACE(std::string(name) + " -> " + target);
      std::filesystem::remove(folder.file("config.json"));
      folder.write("config.json", "{}");
      std::filesystem::remove(folder.file(name));
      std::filesystem::create_symlink(target, folder.file(name));
      testing::expect_error([&] { Checkpoint::open(folder.path()); }, ErrorCode::io,
                            {folder.file(name), "cannot open: "});
    }
    std::filesystem::remove(folder.file(name));
  }
}

TEST(Checkpoint, PointersOfGitLfsAreNamed) {
  TemporaryFolder folder;
  const char* pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n";
  folder.write("config.json", "{}");
  folder.write("model.safetensors", pointer);
  expect_refused(folder, {folder.file("model.safetensors"), "git lfs pull"});
  folder.write("tokenizer.json", pointer);
  expect_refused(folder, {folder.file("tokenizer.json"), "git lfs pull"});
}

TEST(Checkpoint, RefusesShardNamesThatAreNotPlain) {
  const std::string long_name(256, 'a');
  for (const char* name : {"../m.safetensors", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b",
                           "a\\u0000b", long_name.c_str()}) {
    TemporaryFolder folder;
    folder.write("config.json", "{}");
    write_index(folder, "{\"a\":\"" + std::string(name) + "\"}");
    expect_refused(folder, {"index.json", "not a plain file name"});
  }
}

TEST(Checkpoint, RefusesATensorThatTheShardLacks) {
  TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("m-1.safetensors", shard({"a"}));
  folder.write("m-2.safetensors", shard({"b"}));
  write_index(folder, R"({"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-2.safetensors"})");
  expect_refused(folder, {"m-2.safetensors", "lacks tensor c"});
  write_index(folder, R"({"a":"m-2.safetensors","b":"m-1.safetensors"})");
  expect_refused(folder, {"lacks tensor a"});
}

TEST(Checkpoint, RefusesATensorInTwoShards) {
  TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("m-1.safetensors", shard({"a"}));
  folder.write("m-2.safetensors", shard({"b", "a"}));
  write_index(folder, R"({"a":"m-1.safetensors","b":"m-2.safetensors"})");
  expect_refused(folder, {"m-2.safetensors", "tensor a is also in", "m-1.safetensors"});
}

TEST(Checkpoint, RefusesAMalformedIndexOrShard) {
  TemporaryFolder folder;
  folder.write("config.json", "{}");
  folder.write("m.safetensors", shard({"a"}).substr(0, 20));
  for (const char* index : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})"}) {
    folder.write("model.safetensors.index.json", index);
    expect_refused(folder, {"model.safetensors.index.json"});
  }
  write_index(folder, R"({"a":"m.safetensors"})");
  expect_refused(folder, {"m.safetensors", "the header has"});
  std::filesystem::remove(folder.file("m.safetensors"));
  std::filesystem::create_directory(folder.file("m.safetensors"));
  expect_refused(folder, {"m.safetensors", "is a folder"});
}

TEST(Checkpoint, OpensTheEmbeddedModel) {
  const std::string path = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const Checkpoint checkpoint = Checkpoint::open(path);
  const TensorInfo* embedding = checkpoint.find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->dtype(), DType::bf16);
  EXPECT_EQ(static_cast<int64_t>(checkpoint.data(*embedding).size()), embedding->elements() * 2);
  EXPECT_FALSE(checkpoint.tokenizer_json().empty());
}

}  // namespace
}  // namespace walsh
