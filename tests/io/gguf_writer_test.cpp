#include "io/gguf_writer.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/checksum.h"
#include "io/gguf.h"
#include "io/mapped_file.h"
#include "io_testing.h"
#include "shell_text.h"

namespace walsh {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::read_all;
using testing::TemporaryFolder;
using testing::to_bytes;

Bytes pattern(size_t size, int seed) {
  Bytes result(size);
  for (size_t i = 0; i < size; ++i)
    result[i] = static_cast<std::byte>(i * 7 + size_t(seed));
  return result;
}

// Describes metadata of every type; tensors whose sizes leave padding between and behind them.
void describe_model(GgufWriter& writer) {
  writer.set("general.architecture", GgufValue::text("walsh-test"));
  writer.set("t.u8", GgufValue::number<uint8_t>(200));
  writer.set("t.i8", GgufValue::number<int8_t>(-100));
  writer.set("t.u16", GgufValue::number<uint16_t>(60000));
  writer.set("t.i16", GgufValue::number<int16_t>(-30000));
  writer.set("t.u32", GgufValue::number<uint32_t>(4000000000u));
  writer.set("t.i32", GgufValue::number<int32_t>(-2000000000));
  writer.set("t.u64", GgufValue::number<uint64_t>(18446744073709551615ull));
  writer.set("t.i64", GgufValue::number<int64_t>(INT64_MIN));
  writer.set("t.f32", GgufValue::number(0.5f));
  writer.set("t.f64", GgufValue::number(0.1));
  writer.set("t.bool", GgufValue::boolean(true));
  writer.set("t.text", GgufValue::text("caf\xC3\xA9 {\"json\": 1}\n"));
  writer.set("t.texts", GgufValue::texts({"a", "", "ccc"}));
  writer.set("t.sums", GgufValue::numbers(std::vector<uint64_t>(3)));
  writer.set("t.errors", GgufValue::numbers(std::vector<float>(2)));
  writer.set("t.header", GgufValue::numbers(std::vector<uint64_t>{7, 7}));
  writer.add_tensor("w.codes", GgmlType::i8, {100});
  writer.add_tensor("norm", GgmlType::f32, {5, 3});
  writer.add_tensor("q", GgmlType::q8_0, {64, 2});
}

void write_model(GgufWriter& writer, const std::string& path) {
  writer.open(path);
  writer.write("q", pattern(136, 3));
  writer.write("w.codes", pattern(100, 1));
  const Bytes norm = pattern(60, 2);
  writer.write("norm", std::span(norm).subspan(30), 30);
  writer.write("norm", std::span(norm).first(30));
  writer.patch("t.sums", GgufValue::numbers(std::vector<uint64_t>{1, 2, ~0ull}));
  writer.patch("t.errors", GgufValue::numbers(std::vector<float>{0.25f, -1}));
  writer.seal("t.header");
  writer.commit();
}

TEST(GgufWriter, WhatItWritesReadsBack) {
  TemporaryFolder folder;
  GgufWriter writer;
  describe_model(writer);
  const uint64_t predicted = writer.file_size();
  const auto layout = writer.layout();
  write_model(writer, folder.file("m.gguf"));
  const MappedFile file(folder.file("m.gguf"));
  EXPECT_EQ(file.bytes().size(), predicted);
  const GgufContent content = parse_gguf(file.bytes(), "m");
  EXPECT_EQ(content.version, 3u);
  EXPECT_EQ(content.alignment, 64u);
  ASSERT_EQ(content.metadata.size(), 18u);
  EXPECT_EQ(content.metadata[0].key, "general.alignment");
  EXPECT_EQ(content.metadata[1].key, "general.architecture");
  EXPECT_EQ(content.get("t.i64", "m").as_int("m"), INT64_MIN);
  EXPECT_EQ(content.get("t.text", "m").as_text("m"), "caf\xC3\xA9 {\"json\": 1}\n");
  EXPECT_EQ(content.get("t.sums", "m").as_uints("m"), (std::vector<uint64_t>{1, 2, ~0ull}));
  EXPECT_EQ(content.get("t.errors", "m").as_doubles("m"), (std::vector<double>{0.25, -1}));
  const std::vector<Bytes> data{pattern(100, 1), pattern(60, 2), pattern(136, 3)};
  ASSERT_EQ(content.tensors.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const GgufTensor& tensor = content.tensors[i];
    EXPECT_EQ(tensor.name, layout[i].name);
    EXPECT_EQ(tensor.offset, layout[i].offset);
    EXPECT_EQ(tensor.offset % 64, 0u);
    const auto bytes = file.bytes().subspan(tensor.offset, tensor.bytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), data[i].begin(), data[i].end()));
  }
}

TEST(GgufWriter, PaddingIsZero) {
  TemporaryFolder folder;
  GgufWriter writer;
  describe_model(writer);
  write_model(writer, folder.file("m.gguf"));
  const std::string text = read_all(folder.file("m.gguf"));
  EXPECT_EQ(text.size() % 64, 0u);
  const GgufContent content = parse_gguf(to_bytes(text), "m");
  for (const auto& tensor : content.tensors) {
    for (size_t i = tensor.offset + tensor.bytes; i % 64 != 0; ++i)
      ASSERT_EQ(text[i], '\0') << i;
  }
}

TEST(GgufWriter, BytesDependOnTheContentOnly) {
  TemporaryFolder folder;
  GgufWriter first, second;
  describe_model(first);
  describe_model(second);
  write_model(first, folder.file("1"));
  second.open(folder.file("2"));
  second.patch("t.errors", GgufValue::numbers(std::vector<float>{0.25f, -1}));
  second.patch("t.sums", GgufValue::numbers(std::vector<uint64_t>{1, 2, ~0ull}));
  std::thread codes([&] { second.write("w.codes", pattern(100, 1)); });
  std::thread norm([&] { second.write("norm", pattern(60, 2)); });
  second.write("q", pattern(136, 3));
  codes.join();
  norm.join();
  second.seal("t.header");
  second.commit();
  EXPECT_EQ(read_all(folder.file("1")), read_all(folder.file("2")));
}

TEST(GgufWriter, TheSealIsTheChecksumOfEverythingInFrontOfTheData) {
  TemporaryFolder folder;
  GgufWriter writer;
  describe_model(writer);
  write_model(writer, folder.file("m.gguf"));
  Bytes bytes = to_bytes(read_all(folder.file("m.gguf")));
  const GgufContent content = parse_gguf(bytes, "m");
  const auto stored = content.get("t.header", "m").as_uints("m");
  const GgufEntry* entry = content.find_entry("t.header");
  ASSERT_NE(entry, nullptr);
  ASSERT_EQ(std::memcmp(bytes.data() + entry->offset, stored.data(), 16), 0);
  std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(entry->offset), 16, std::byte{0});
  const Checksum expected = checksum(std::span(bytes).first(content.data_offset));
  EXPECT_EQ((Checksum{stored[0], stored[1]}), expected);
}

TEST(GgufWriter, AcceptsAModelWithoutTensors) {
  TemporaryFolder folder;
  GgufWriter writer(32);
  writer.open(folder.file("m"));
  writer.commit();
  EXPECT_TRUE(parse_gguf(to_bytes(read_all(folder.file("m"))), "m").tensors.empty());
}

TEST(GgufWriter, MisuseIsReported) {
  TemporaryFolder folder;
  const auto misuse = [](auto&& call, const std::vector<std::string>& parts) {
    expect_error(call, ErrorCode::internal, parts);
  };
  misuse([] { GgufWriter writer(48); }, {"power of two"});
  GgufWriter writer;
  describe_model(writer);
  misuse([&] { writer.set("t.u8", GgufValue::text("")); }, {"t.u8", "set twice"});
  misuse([&] { writer.set("", GgufValue::text("")); }, {"not a valid key"});
  misuse([&] { writer.add_tensor("q", GgmlType::f32, {1}); }, {"q", "added twice"});
  misuse([&] { writer.add_tensor("z", GgmlType::f32, {1, 0}); }, {"z", "dimension of 0"});
  misuse([&] { writer.add_tensor("z", GgmlType::f32, {1, 1, 1, 1, 1}); }, {"z", "rank"});
  misuse([&] { writer.write("q", pattern(136, 0)); }, {"q", "not open"});
  misuse([&] { writer.patch("t.u8", GgufValue::number<uint8_t>(1)); }, {"t.u8", "not open"});
  misuse([&] { writer.commit(); }, {"not open"});
  writer.open(folder.file("m"));
  misuse([&] { writer.open(folder.file("m")); }, {"opened twice"});
  misuse([&] { writer.set("late", GgufValue::text("")); }, {"late", "after open"});
  misuse([&] { writer.add_tensor("late", GgmlType::f32, {1}); }, {"late", "after open"});
  misuse([&] { writer.write("q", pattern(137, 0)); }, {"q", "do not fit into 136"});
  misuse([&] { writer.write("q", pattern(2, 0), 135); }, {"q", "do not fit"});
  misuse([&] { writer.write("q", pattern(2, 0), ~0ull); }, {"q", "do not fit"});
  misuse([&] { writer.write("absent", {}); }, {"absent", "no such tensor"});
  misuse([&] { writer.patch("absent", GgufValue::text("")); }, {"absent", "no such key"});
  misuse([&] { writer.patch("t.u8", GgufValue::number<uint16_t>(1)); }, {"is u8", "become u16"});
  misuse([&] { writer.patch("t.sums", GgufValue::numbers(std::vector<uint64_t>(2))); },
         {"array of 3 u64", "array of 2 u64"});
  writer.write("q", pattern(136, 3));
  misuse([&] { writer.commit(); }, {"w.codes", "0 of 100 bytes"});
  misuse([&] { writer.patch("t.text", GgufValue::text("caf")); }, {"t.text", "cannot become"});
  misuse([&] { writer.seal("t.errors"); }, {"t.errors", "cannot become array of 2 u64"});
  writer.seal("t.header");
  misuse([&] { writer.patch("t.u8", GgufValue::number<uint8_t>(1)); }, {"t.u8", "after seal"});
}

TEST(GgufWriter, LeavesNothingWithoutCommit) {
  TemporaryFolder folder;
  {
    GgufWriter writer;
    describe_model(writer);
    writer.open(folder.file("m.gguf"));
    writer.write("q", pattern(136, 3));
  }
  EXPECT_TRUE(folder.names().empty());
  GgufWriter writer;
  describe_model(writer);
  expect_error([&] { writer.open(folder.file("no/m.gguf")); }, ErrorCode::io, {"no/m.gguf"});
}

TEST(GgufWriter, FullDiskLeavesTheOldFileAndNothingElse) {
  TemporaryFolder folder;
  folder.write("m.gguf", "old");
  // Everything fits but the last byte; then not even the header fits.
  for (const uint64_t missing : {1u, 1000u}) {
    GgufWriter writer;
    describe_model(writer);
    const testing::FileSizeLimit limit(writer.file_size() - missing);
    expect_error([&] { write_model(writer, folder.file("m.gguf")); }, ErrorCode::io,
                 {folder.file("m.gguf"), "File too large"});
  }
  EXPECT_EQ(read_all(folder.file("m.gguf")), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"m.gguf"});
}

// tests/io/read_gguf.py prints what the Python package gguf finds in a file.
TEST(GgufWriter, ThePythonPackageReadsIt) {
  const char* chosen = std::getenv("WALSH_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "python3";
  const std::string probe = " -c 'from gguf import GGUFReader, ReaderField; ReaderField.contents'";
  if (std::system((quoted(python) + probe + " >/dev/null 2>&1").c_str()) != 0) {
    GTEST_SKIP() << python << " has no package gguf (WALSH_PYTHON names another interpreter)";
  }
  TemporaryFolder folder;
  GgufWriter writer;
  describe_model(writer);
  write_model(writer, folder.file("m.gguf"));
  const std::string command =
      quoted(python) + " " + quoted(WALSH_SOURCE_DIR "/tests/io/read_gguf.py") + " " +
      quoted(folder.file("m.gguf")) + " > " + quoted(folder.file("out.json"));
  ASSERT_EQ(std::system(command.c_str()), 0);
  const auto found = nlohmann::json::parse(read_all(folder.file("out.json")));
  const auto& fields = found.at("fields");
  EXPECT_EQ(fields.size(), 18u);
  EXPECT_EQ(fields.at("general.architecture"), "walsh-test");
  EXPECT_EQ(fields.at("general.alignment"), 64);
  EXPECT_EQ(fields.at("t.u8"), 200);
  EXPECT_EQ(fields.at("t.i8"), -100);
  EXPECT_EQ(fields.at("t.u16"), 60000);
  EXPECT_EQ(fields.at("t.i16"), -30000);
  EXPECT_EQ(fields.at("t.u32"), 4000000000u);
  EXPECT_EQ(fields.at("t.i32"), -2000000000);
  EXPECT_EQ(fields.at("t.u64"), 18446744073709551615ull);
  EXPECT_EQ(fields.at("t.i64"), INT64_MIN);
  EXPECT_EQ(fields.at("t.f32"), 0.5);
  EXPECT_EQ(fields.at("t.f64"), 0.1);
  EXPECT_EQ(fields.at("t.bool"), true);
  EXPECT_EQ(fields.at("t.text"), "caf\xC3\xA9 {\"json\": 1}\n");
  EXPECT_EQ(fields.at("t.texts"), (nlohmann::json{"a", "", "ccc"}));
  EXPECT_EQ(fields.at("t.sums"), (nlohmann::json{1, 2, 18446744073709551615ull}));
  EXPECT_EQ(fields.at("t.errors"), (nlohmann::json{0.25, -1}));
  const MappedFile file(folder.file("m.gguf"));
  EXPECT_EQ(fields.at("t.header"),
            nlohmann::json(parse_gguf(file.bytes(), "m").get("t.header", "m").as_uints("m")));
  const auto& tensors = found.at("tensors");
  ASSERT_EQ(tensors.size(), 3u);
  const std::vector<std::string> names{"w.codes", "norm", "q"}, types{"I8", "F32", "Q8_0"};
  const std::vector<Bytes> data{pattern(100, 1), pattern(60, 2), pattern(136, 3)};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tensors[i].at("name"), names[i]);
    EXPECT_EQ(tensors[i].at("type"), types[i]);
    std::string hex;
    for (const std::byte b : data[i]) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += kDigits[static_cast<int>(b) >> 4];
      hex += kDigits[static_cast<int>(b) & 15];
    }
    EXPECT_EQ(tensors[i].at("data"), hex);
  }
  EXPECT_EQ(tensors[1].at("shape"), (nlohmann::json{5, 3}));
}

}  // namespace
}  // namespace walsh
