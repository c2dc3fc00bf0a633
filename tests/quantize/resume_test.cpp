// Tests the journal of an unfinished output: what it stores, and what happens if it cannot be used.
#include "quantize/pipeline/resume.h"

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "io/io_testing.h"
#include "quantize/tiny_pipeline.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::FileSizeLimit;
using testing::TemporaryFolder;

constexpr Checksum kKey = {1, 2};

void add(ResumeFile& file, const Checksum& key, const std::string& content, double nmse = 0.5) {
  const std::span<const std::byte> array = std::as_bytes(std::span(content));
  file.add(key, nmse, std::span(&array, 1));
}

class ResumeFileTest : public ::testing::Test {
 protected:
  NoteFunction notes() {
    return [this](const std::string& text) { notes_.push_back(text); };
  }
  // Opens a journal where something stands that is none; that has to be told once.
  void expect_refused(const std::string& words) {
    notes_.clear();
    ResumeFile file(out_, notes());
    EXPECT_FALSE(file.usable());
    add(file, kKey, "content");
    EXPECT_FALSE(file.find(kKey, 7));
    file.remove();
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_TRUE(notes_[0].starts_with(path_ + ": ")) << notes_[0];
    EXPECT_NE(notes_[0].find(words), std::string::npos) << notes_[0];
  }

  TemporaryFolder folder_;
  std::string out_ = folder_.file("out"), path_ = out_ + kResumeSuffix;
  std::vector<std::string> notes_;
};

TEST_F(ResumeFileTest, KeepsRecordsUntilItIsRemoved) {
  {
    ResumeFile file(out_, notes());
    add(file, kKey, "content");
    add(file, {3, 4}, std::string(1000, 'x'), 0.25);
  }
  {
    ResumeFile file(out_, notes());
    const auto record = file.find(kKey, 7);
    ASSERT_TRUE(record);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(record->content.data()), 7), "content");
    EXPECT_EQ(record->nmse, 0.5);
    EXPECT_TRUE(file.find({3, 4}, 1000));
    EXPECT_FALSE(file.find({3, 4}, 999));
    EXPECT_FALSE(file.find({5, 6}, 7));
    file.remove();
  }
  EXPECT_TRUE(folder_.names().empty());
  { ResumeFile unused(out_, notes()); }
  EXPECT_TRUE(folder_.names().empty());
  EXPECT_TRUE(notes_.empty());
}

TEST_F(ResumeFileTest, AChangedByteOfARecordMakesItUseless) {
  {
    ResumeFile file(out_, notes());
    add(file, kKey, "content");
  }
  const std::string good = slurp(path_);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    spill(path_, bad);
    ResumeFile file(out_, notes());
    EXPECT_FALSE(file.find(kKey, 7)) << at;
  }
}

TEST_F(ResumeFileTest, LeavesOtherFilesAsTheyAre) {
  spill(path_, "precious");
  expect_refused("no journal of walsh");
  EXPECT_EQ(slurp(path_), "precious");
  std::filesystem::remove(path_);

  folder_.write("other", "precious");
  std::filesystem::create_symlink("other", path_);
  expect_refused("symbolic link");
  EXPECT_EQ(slurp(folder_.file("other")), "precious");
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("absent", path_);
  expect_refused("symbolic link");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("absent")));
  std::filesystem::remove(path_);

  std::filesystem::create_directory(path_);
  expect_refused("directory");
  EXPECT_TRUE(std::filesystem::is_directory(path_));
  std::filesystem::remove(path_);

  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused("no regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
}

TEST_F(ResumeFileTest, BeginsAnewOverTheBeginningOfAJournalOrAnOlderOne) {
  for (const char* text : {"", "wsh", "wshrese2", "wshrese1 and records of it"}) {
    spill(path_, text);
    ResumeFile file(out_, notes());
    EXPECT_TRUE(file.usable()) << text;
    EXPECT_EQ(std::filesystem::file_size(path_), 0u) << text;
    add(file, kKey, "content");
    EXPECT_TRUE(file.find(kKey, 7));
    file.remove();
  }
  EXPECT_TRUE(notes_.empty());
}

TEST_F(ResumeFileTest, IsUsedByOneAtATime) {
  ResumeFile first(out_, notes());
  add(first, kKey, "content");
  expect_refused("in use by another process");
  EXPECT_TRUE(first.find(kKey, 7));
}

// The holder of the journal also holds the file of that name, however many processes come and go.
TEST_F(ResumeFileTest, NobodyElseHoldsItsName) {
  std::atomic<int> holders{0}, held{0}, together{0};
  const auto work = [&] {
    for (int round = 0; round < 500; ++round) {
      ResumeFile file(out_, {});
      if (!file.usable()) continue;
      if (holders.fetch_add(1) != 0) ++together;
      add(file, kKey, "content");
      if (!file.usable()) ++together;  // its name was taken away
      holders.fetch_sub(1);
      ++held;
      file.remove();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back(work);
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_GT(held, 0);
  EXPECT_EQ(together, 0);
}

TEST_F(ResumeFileTest, KeepsWhatItHasWhenTheDiskIsFull) {
  ResumeFile file(out_, notes());
  add(file, kKey, "content");
  {
    const FileSizeLimit limit(200);
    add(file, {3, 4}, std::string(1000, 'x'));
    add(file, {5, 6}, "y");
  }
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("File too large"), std::string::npos) << notes_[0];
  EXPECT_EQ(std::filesystem::file_size(path_), 56u + 7u);
  EXPECT_TRUE(file.find(kKey, 7));
  EXPECT_FALSE(file.find({3, 4}, 1000));
}

TEST_F(ResumeFileTest, DoesWithoutAFileThatWasDeletedOrReplaced) {
  ResumeFile file(out_, notes());
  add(file, kKey, "content");
  std::filesystem::remove(path_);
  spill(path_, "precious");
  add(file, {3, 4}, "more");
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("was deleted"), std::string::npos) << notes_[0];
  file.remove();
  EXPECT_EQ(slurp(path_), "precious");
}

// These runs have all they need but a journal.
class RunWithoutJournal : public TinyPipeline {
 protected:
  void SetUp() override {
    want_ = quantize(recipe_);
    std::filesystem::remove(out_);
  }
  void expect_success(const std::function<void(const QuantizeProgress&)>& progress,
                      const std::string& words, size_t count = 1) {
    std::vector<std::string> notes;
    quantize_to_file(*compressor(recipe_), out_, progress,
                     [&](const std::string& text) { notes.push_back(text); });
    EXPECT_EQ(slurp(out_), want_);
    if (words.empty()) {
      EXPECT_TRUE(notes.empty());
      return;
    }
    ASSERT_EQ(notes.size(), count);
    EXPECT_NE(notes.back().find(words), std::string::npos) << notes.back();
  }

  Recipe recipe_ = recipe_of("tc3:h:L14");
  std::string out_ = tiny_.file("out.gguf"), path_ = out_ + kResumeSuffix, want_;
};

TEST_F(RunWithoutJournal, SucceedsWhereAFolderHasTheName) {
  std::filesystem::create_directory(path_);
  expect_success({}, "directory");
  EXPECT_TRUE(std::filesystem::is_directory(path_));
}

TEST_F(RunWithoutJournal, SucceedsWhenOnlyTheOutputHasRoom) {
  // This record of some other run leaves no room behind it.
  struct {
    uint64_t magic = 0x3265736572687377, key[2] = {1, 2};
    double nmse = 0.5;
    uint64_t bytes = 0, sum[2] = {};
  } header;
  header.bytes = want_.size();
  spill(path_, std::string(reinterpret_cast<const char*>(&header), sizeof(header)));
  std::filesystem::resize_file(path_, sizeof(header) + header.bytes);
  const FileSizeLimit limit(want_.size());
  expect_success({}, "File too large", 2);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(RunWithoutJournal, SucceedsWhenItIsDeletedMeanwhile) {
  expect_success(
      [&](const QuantizeProgress& p) {
        if (p.index == p.count) std::filesystem::remove(path_);
      },
      "");
  std::filesystem::remove(out_);
  expect_success([&](const QuantizeProgress&) { std::filesystem::remove(path_); }, "was deleted");
}

TEST_F(RunWithoutJournal, LeavesTheTargetOfALinkAlone) {
  spill(tiny_.file("other"), "precious");
  std::filesystem::create_symlink(tiny_.file("other"), path_);
  expect_success({}, "symbolic link");
  EXPECT_EQ(slurp(tiny_.file("other")), "precious");
}

// A journal of other settings must not stay behind when its output is complete.
TEST_F(TinyPipeline, AJournalOfAnotherRunGoesWithANote) {
  const std::string out = tiny_.file("out.gguf"), journal = out + kResumeSuffix;
  const auto interrupt = [left = 2](const QuantizeProgress& p) mutable {
    if (p.tensor->format->kind == CodeKind::trellis && --left == 0)
      throw Error(ErrorCode::interrupted, "", "stopped");
  };
  for (const char* other : {"tq3", "tc2:h:L14", "tc3:h:L14"}) {
    EXPECT_THROW(quantize_to_file(*compressor(recipe_of("tc3:h:L14")), out, interrupt), Error);
    ASSERT_TRUE(std::filesystem::exists(journal));
    std::vector<std::string> notes;
    quantize_to_file(*compressor(recipe_of(other)), out, {},
                     [&](const std::string& text) { notes.push_back(text); });
    EXPECT_FALSE(std::filesystem::exists(journal)) << other;
    std::filesystem::remove(out);
    if (std::string(other) == "tc3:h:L14") {
      EXPECT_TRUE(notes.empty()) << notes[0];
      continue;
    }
    ASSERT_EQ(notes.size(), 1u) << other;
    EXPECT_TRUE(notes[0].starts_with(journal + ": has 2 tensors of an interrupted run"))
        << notes[0];
  }
  spill(journal, "precious");
  quantize_to_file(*compressor(recipe_of("tq3")), out, {}, [](const std::string& text) {
    ADD_FAILURE() << "nobody asked for a journal: " << text;
  });
  EXPECT_EQ(slurp(journal), "precious");
}

TEST(ResumeName, IsBesideAFolderThatEndsWithASlash) {
  EXPECT_EQ(resume_name("a/b"), "a/b.walsh-resume");
  EXPECT_EQ(resume_name("a/b//"), "a/b.walsh-resume");
}

}  // namespace
}  // namespace walsh
