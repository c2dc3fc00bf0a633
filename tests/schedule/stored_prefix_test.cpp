// Tests prefixes that are kept in files: texts behind a restart, every type of cache, owners, the
// bound of the folder, and files that are damaged or of something else.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "model/model_support.h"
#include "schedule/prefix_store.h"
#include "synthetic_model.h"
#include "temporary_folder.h"
#include "texts.h"
#include "threads.h"

namespace walsh {
namespace {

using test::finish;
using test::Recorder;

std::vector<int32_t> some_tokens(uint64_t seed, int64_t length) {
  return test::random_tokens(length, 500, seed);
}

class StoredPrefixTest : public testing::Test {
 protected:
  Model load_synthetic(const char* cache = "f16", const char* shape = "tiny") {
    return test::synthetic_model(pool_, cache, "tq4", shape);
  }

  PrefixStore::Options files(const std::string& model = "model") {
    PrefixStore::Options options;
    options.folder = folder_.file("cache");
    options.model = sha256(model);
    options.note = [this](const std::string& text) { notes_.push_back(text); };
    return options;
  }
  static SchedulerOptions small(PrefixStore* store) {
    SchedulerOptions options;
    options.positions = 512;
    options.running = 2;
    options.step_tokens = 64;
    options.kept = 2;
    options.store = store;
    return options;
  }
  static TextRequest request(std::vector<int32_t> prompt, const std::string& owner = "") {
    TextRequest wanted;
    wanted.prompt = std::move(prompt);
    wanted.max_tokens = 12;
    wanted.sampler.temperature = 0;
    wanted.owner = owner;
    return wanted;
  }
  static std::shared_ptr<Recorder> run(Scheduler& scheduler, TextRequest wanted) {
    const auto sink = std::make_shared<Recorder>();
    scheduler.add(std::move(wanted), sink);
    finish(scheduler);
    EXPECT_TRUE(sink->end.has_value()) << (sink->error ? sink->error->what() : "");
    return sink;
  }
  // Runs a text, and ends as a server does.
  void keep(const Model& model, TextRequest wanted, const PrefixStore::Options& options) {
    PrefixStore store(options);
    Scheduler scheduler(model, small(&store));
    run(scheduler, std::move(wanted));
    scheduler.store_kept();
  }
  std::shared_ptr<Recorder> after_restart(const Model& model, TextRequest wanted,
                                          const PrefixStore::Options& options) {
    PrefixStore store(options);
    Scheduler scheduler(model, small(&store));
    return run(scheduler, std::move(wanted));
  }
  std::string only_file() const {
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file("cache"))) {
      EXPECT_TRUE(found.empty());
      found = entry.path().string();
    }
    return found;
  }

  // Compares the second turn of a conversation behind a restart with the same without one.
  void expect_same_behind_restart(const Model& model, const std::string& what) {
    const int64_t vocab = std::min<int64_t>(500, model.config.vocab);
    const std::vector<int32_t> first = test::random_tokens(150, vocab, 1),
                               more = test::random_tokens(20, vocab, 2);
    Scheduler plain(model, small(nullptr));
    std::vector<int32_t> second = first;
    const auto answer = run(plain, request(first));
    second.insert(second.end(), answer->tokens.begin(), answer->tokens.end());
    second.insert(second.end(), more.begin(), more.end());
    const auto expected = run(plain, request(second));
    ASSERT_GT(expected->end->cached_tokens, 140) << what;

    keep(model, request(first), files(what));
    const auto found = after_restart(model, request(second), files(what));
    EXPECT_EQ(found->tokens, expected->tokens) << what;
    EXPECT_EQ(found->end->cached_tokens, expected->end->cached_tokens) << what;
    // The prompt as it was, which takes back what stands behind it.
    const auto again = after_restart(model, request(first), files(what));
    EXPECT_EQ(again->end->cached_tokens, 149) << what;
    Scheduler twice(model, small(nullptr));
    run(twice, request(first));
    EXPECT_EQ(again->tokens, run(twice, request(first))->tokens) << what;
  }

  ThreadPool pool_{test::kThreads};
  test::TemporaryFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(StoredPrefixTest, ATextGoesOnAfterARestartAsWithoutOne) {
  for (const char* cache : {"f16", "q8_0", "q4_0", "tq3_0", "kt2", "kt3", "kt4"})
    expect_same_behind_restart(load_synthetic(cache), cache);
  EXPECT_EQ(notes_.size(), 18u) << "all but the first type find files of others at each start";
}

TEST_F(StoredPrefixTest, ModelsOfEveryKindDoSo) {
  for (const char* shape : {"tiny-delta", "tiny-next", "tiny-latent", "tiny-gemma4", "tiny-chunks"})
    for (const char* cache : {"f16", "q8_0"})
      expect_same_behind_restart(load_synthetic(cache, shape), std::string(shape) + cache);
}

TEST_F(StoredPrefixTest, WhatIsDroppedFromMemoryIsReadAgainWithoutARestart) {
  const Model model = load_synthetic();
  PrefixStore store(files());
  Scheduler scheduler(model, small(&store));
  const auto first = run(scheduler, request(some_tokens(1, 100)));
  for (uint64_t seed = 2; seed < 6; ++seed) {
    run(scheduler, request(some_tokens(seed, 100)));
    store.finish();
  }
  const auto again = run(scheduler, request(some_tokens(1, 100)));
  EXPECT_EQ(again->tokens, first->tokens);
  EXPECT_EQ(again->end->cached_tokens, 99);
  EXPECT_EQ(scheduler.counts().restored, 1u);
}

TEST_F(StoredPrefixTest, OtherOwnersDoNotFindIt) {
  const Model model = load_synthetic();
  keep(model, request(some_tokens(1, 100), "first"), files());
  EXPECT_EQ(
      after_restart(model, request(some_tokens(1, 100), "second"), files())->end->cached_tokens, 0);
  EXPECT_EQ(
      after_restart(model, request(some_tokens(1, 100), "first"), files())->end->cached_tokens, 99);
}

TEST_F(StoredPrefixTest, FilesOfAnotherModelAreNotUsedWithOneNote) {
  const Model model = load_synthetic();
  keep(model, request(some_tokens(1, 100)), files("one"));
  keep(model, request(some_tokens(2, 100)), files("one"));
  notes_.clear();
  EXPECT_EQ(after_restart(model, request(some_tokens(1, 100)), files("other"))->end->cached_tokens,
            0);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("of another model"), std::string::npos) << notes_[0];
  EXPECT_EQ(after_restart(model, request(some_tokens(1, 100)), files("one"))->end->cached_tokens,
            99)
      << "they stay";
}

TEST_F(StoredPrefixTest, OnlyTheOwnerOfTheFilesCanReadThem) {
  keep(load_synthetic(), request(some_tokens(1, 100)), files());
  struct stat info {};
  ASSERT_EQ(::stat(only_file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::stat(folder_.file("cache").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(StoredPrefixTest, DamagedFilesAreRemovedAndTheTextIsReadAnew) {
  const Model model = load_synthetic("q8_0");
  const TextRequest wanted = request(some_tokens(1, 100));
  const auto expected = [&] {
    Scheduler plain(model, small(nullptr));
    return run(plain, wanted)->tokens;
  }();
  keep(model, wanted, files());
  const std::string path = only_file(), whole = test::read_file(path);
  const auto expect_ignored = [&](const std::string& content, const std::string& what) {
    std::ofstream(path, std::ios::binary) << content;
    notes_.clear();
    const auto found = after_restart(model, wanted, files());
    EXPECT_EQ(found->tokens, expected) << what;
    EXPECT_EQ(found->end->cached_tokens, 0) << what;
    EXPECT_EQ(notes_.size(), 1u) << what;
    EXPECT_FALSE(std::filesystem::exists(path)) << what;
  };
  for (const size_t size : {size_t{0}, size_t{7}, size_t{127}, size_t{130}, whole.size() - 1})
    expect_ignored(whole.substr(0, size), "cut to " + std::to_string(size));
  expect_ignored(whole + "x", "longer");
  const size_t last = whole.size() - 1;
  for (const size_t place : std::vector<size_t>{0, 8, 20, 50, 80, 88, 100, 115, 140, 600, last}) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 4);
    expect_ignored(changed, "changed at " + std::to_string(place));
  }
}

// Somebody who may write to the folder can make files with right checksums.
TEST_F(StoredPrefixTest, ImpossibleContentsWithRightChecksumsAreIgnored) {
  for (const char* cache : {"f16", "q8_0"}) {
    const Model model = load_synthetic(cache);
    const TextRequest wanted = request(some_tokens(1, 100));
    PrefixHead head;
    head.model = sha256("model");
    head.owner = sha256("");
    head.tokens = wanted.prompt;
    std::filesystem::create_directory(folder_.file("cache"));
    const auto expect_ignored = [&](const std::vector<std::byte>& saved, const char* what) {
      write_prefix(folder_.file("cache/forged.walsh-prefix"), head, saved);
      EXPECT_EQ(after_restart(model, wanted, files())->end->cached_tokens, 0) << cache << what;
    };
    expect_ignored({}, "nothing");
    expect_ignored(std::vector<std::byte>(8), "too little");
    expect_ignored(std::vector<std::byte>(64, std::byte{0x7f}), "a large number");
    expect_ignored(std::vector<std::byte>(size_t{1} << 22), "too much");
    head.tokens.assign(100, 1 << 30);
    std::copy_n(wanted.prompt.begin(), 50, head.tokens.begin());
    expect_ignored(std::vector<std::byte>(8), "tokens outside the vocabulary");
  }
}

TEST_F(StoredPrefixTest, TheFolderIsBounded) {
  const Model model = load_synthetic();
  keep(model, request(some_tokens(1, 100)), files());
  PrefixStore::Options options = files();
  options.bytes = std::filesystem::file_size(only_file()) * 5 / 2;
  for (uint64_t seed = 2; seed < 6; ++seed)
    keep(model, request(some_tokens(seed, 100)), options);
  const PrefixStore store(options);
  EXPECT_EQ(store.counts().files, 2u);
  EXPECT_LE(store.counts().bytes, options.bytes);
  const std::string owner;
  const auto newest = some_tokens(5, 100), oldest = some_tokens(1, 100);
  EXPECT_TRUE(store.has({newest, owner}));
  EXPECT_FALSE(store.has({oldest, owner}));
}

TEST_F(StoredPrefixTest, APrefixThatIsLargerThanTheBoundIsNotWritten) {
  PrefixStore::Options options = files();
  options.bytes = 1000;
  keep(load_synthetic(), request(some_tokens(1, 100)), options);
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("more than all files may have"), std::string::npos) << notes_[0];
}

TEST_F(StoredPrefixTest, AFullDiskGivesOneNoteAndNoFailure) {
  const Model model = load_synthetic();
  PrefixStore store(files());
  Scheduler scheduler(model, small(&store));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  for (uint64_t seed = 1; seed < 4; ++seed)
    run(scheduler, request(some_tokens(seed, 100)));
  scheduler.store_kept();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(notes_.size(), 1u);
  EXPECT_GE(store.counts().failed, 2u);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file("cache")));
}

TEST_F(StoredPrefixTest, LongerTextsReplaceTheirBeginnings) {
  const Model model = load_synthetic();
  keep(model, request(some_tokens(1, 100)), files());
  const std::string before = only_file();
  Scheduler plain(model, small(nullptr));
  std::vector<int32_t> longer = some_tokens(1, 100);
  const std::vector<int32_t> answer = run(plain, request(longer))->tokens;
  longer.insert(longer.end(), answer.begin(), answer.end());
  keep(model, request(longer), files());
  EXPECT_NE(only_file(), before);
}

TEST_F(StoredPrefixTest, TextsWithImagesGetIntoNoFileButFindWhatStandsBeforeThem) {
  const Model model = load_synthetic();
  TextRequest seen = request(some_tokens(1, 100));
  const auto width = static_cast<size_t>(model.config.hidden);
  seen.images.push_back(
      {60, 4, std::make_shared<std::vector<float>>(4 * width, 0.01f), "an image"});
  keep(model, seen, files());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file("cache")));
  keep(model, request(some_tokens(1, 100)), files());
  EXPECT_EQ(after_restart(model, seen, files())->end->cached_tokens, 60);
}

TEST_F(StoredPrefixTest, FilesWithNamesAreBoundedAndBelongToTheirOwner) {
  const Model model = load_synthetic();
  PrefixStore::Options options = files();
  options.bytes = 600000;
  PrefixStore store(options);
  Scheduler scheduler(model, small(&store));
  run(scheduler, request(some_tokens(1, 100), "me"));
  const PlaceFile mine = scheduler.save_place(0, "me", "chat.bin");
  run(scheduler, request(some_tokens(2, 40), "you"));
  scheduler.save_place(0, "you", "chat.bin");
  EXPECT_EQ(scheduler.restore_place(1, "me", "chat.bin").tokens, mine.tokens)
      << "the other one has not replaced it";
  ASSERT_LT(mine.bytes * 2, options.bytes);
  scheduler.save_place(1, "me", "chat.bin");
  std::optional<ErrorCode> refused;
  for (int i = 0; i < 8 && !refused; ++i)
    try {
      scheduler.save_place(1, "me", "chat" + std::to_string(i));
    } catch (const Error& e) {
      refused = e.code();
    }
  EXPECT_EQ(refused, ErrorCode::limit);
}

TEST_F(StoredPrefixTest, PlacesAreSavedAndRestoredByName) {
  const Model model = load_synthetic();
  const TextRequest wanted = request(some_tokens(1, 100), "me");
  PlaceFile saved;
  {
    PrefixStore store(files());
    Scheduler scheduler(model, small(&store));
    run(scheduler, wanted);
    saved = scheduler.save_place(0, "me", "chat.bin");
    EXPECT_THROW(scheduler.save_place(0, "you", "chat.bin"), Error);
    EXPECT_THROW(scheduler.save_place(1, "me", "chat.bin"), Error);
    EXPECT_THROW(scheduler.save_place(0, "me", "../chat.bin"), Error);
    EXPECT_THROW(scheduler.save_place(2, "me", "chat.bin"), Error);
    EXPECT_EQ(scheduler.erase_place(0, "you"), 0);
    EXPECT_EQ(scheduler.erase_place(0, "me"), 111);
    EXPECT_EQ(run(scheduler, wanted)->end->cached_tokens, 0);
  }
  EXPECT_EQ(saved.tokens, 111);
  PrefixStore store(files());
  Scheduler scheduler(model, small(&store));
  EXPECT_THROW(scheduler.restore_place(1, "you", "chat.bin"), Error);
  EXPECT_THROW(scheduler.restore_place(1, "me", "absent.bin"), Error);
  const PlaceFile restored = scheduler.restore_place(1, "me", "chat.bin");
  EXPECT_EQ(restored.tokens, 111);
  EXPECT_EQ(restored.bytes, saved.bytes);
  EXPECT_EQ(scheduler.places()[1].tokens.size(), 111u);
  EXPECT_EQ(run(scheduler, wanted)->end->cached_tokens, 99);
}

}  // namespace
}  // namespace walsh
