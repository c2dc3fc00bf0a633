#include "io/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "io_testing.h"

namespace walsh {
namespace {

using testing::Bytes;
using testing::expect_error;
using testing::FileSizeLimit;
using testing::read_all;
using testing::TemporaryFolder;
using testing::to_bytes;

using Names = std::vector<std::string>;

TEST(AtomicFile, AppearsOnlyAtCommit) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder.file("out"));
    file.append(to_bytes("hello "));
    file.append(to_bytes("world"));
    EXPECT_FALSE(std::filesystem::exists(folder.file("out")));
    EXPECT_EQ(file.size(), 11u);
    file.commit();
  }
  EXPECT_EQ(read_all(folder.file("out")), "hello world");
  EXPECT_EQ(folder.names(), Names{"out"});
}

TEST(AtomicFile, WithoutCommitLeavesTheOldFileAndNothingElse) {
  TemporaryFolder folder;
  folder.write("out", "old");
  {
    AtomicFile file(folder.file("out"));
    file.append(to_bytes("new"));
  }
  EXPECT_EQ(read_all(folder.file("out")), "old");
  EXPECT_EQ(folder.names(), Names{"out"});
}

TEST(AtomicFile, NothingThrowsOnceTheFileHasItsName) {
  TemporaryFolder folder;
  AtomicFile file(folder.file("out"));
  file.append(to_bytes("content"));
  // No descriptor is left to open the folder with.
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 3;
  ::setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_NO_THROW(file.commit());
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(read_all(folder.file("out")), "content");
}

TEST(AtomicFile, ReplacesTheOldFileAtCommit) {
  TemporaryFolder folder;
  folder.write("out", "old and longer");
  write_file(folder.file("out"), "new");
  EXPECT_EQ(read_all(folder.file("out")), "new");
  EXPECT_EQ(folder.names(), Names{"out"});
}

TEST(AtomicFile, WritesAtAnyPlaceAndFillsGapsWithZeros) {
  TemporaryFolder folder;
  AtomicFile file(folder.file("out"), 1 << 20);
  file.write_at(6, to_bytes("cd"));
  file.write_at(0, to_bytes("ab"));
  file.resize(10);
  file.commit();
  EXPECT_EQ(read_all(folder.file("out")), std::string("ab\0\0\0\0cd\0\0", 10));
}

TEST(AtomicFile, ReservedSpaceThatIsNotUsedDoesNotShow) {
  TemporaryFolder folder;
  AtomicFile file(folder.file("out"), 1 << 20);
  file.append(to_bytes("x"));
  file.commit();
  EXPECT_EQ(std::filesystem::file_size(folder.file("out")), 1u);
  struct stat info {};
  ASSERT_EQ(::stat(folder.file("out").c_str(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 64 << 10);
}

TEST(AtomicFile, AcceptsWritesFromSeveralThreads) {
  TemporaryFolder folder;
  AtomicFile file(folder.file("out"));
  constexpr size_t kPiece = 1000;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&file, t] {
      for (size_t i = t; i < 40; i += 4) {
        file.write_at(i * kPiece, Bytes(kPiece, static_cast<std::byte>(i)));
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  file.commit();
  const std::string content = read_all(folder.file("out"));
  ASSERT_EQ(content.size(), 40 * kPiece);
  for (size_t i = 0; i < content.size(); ++i)
    ASSERT_EQ(content[i], static_cast<char>(i / kPiece));
}

TEST(AtomicFile, FollowsSymbolicLinks) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("real"));
  folder.write("real/target", "old");
  std::filesystem::create_symlink("real/target", folder.file("link"));
  write_file(folder.file("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(read_all(folder.file("real/target")), "new");
}

TEST(AtomicFile, FollowsSymbolicLinksToNothing) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("real"));
  std::filesystem::create_symlink("../second", folder.file("real/first"));
  std::filesystem::create_symlink("real/first", folder.file("link"));
  write_file(folder.file("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("real/first")));
  EXPECT_EQ(read_all(folder.file("second")), "new");
  std::filesystem::create_symlink("no/folder/file", folder.file("lost"));
  EXPECT_THROW(write_file(folder.file("lost"), "new"), Error);
}

TEST(AtomicFile, KeepsThePermissionsOfTheOldFile) {
  TemporaryFolder folder;
  const auto mode_of = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return info.st_mode & 07777;
  };
  const std::string path = folder.write("out", "old");
  for (const mode_t mode : {0600, 0664, 0777, 0440}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    AtomicFile file(path);
    EXPECT_EQ(mode_of(file.temporary_path()), mode) << "what is private is so from the start";
    file.commit();
    EXPECT_EQ(mode_of(path), mode);
  }
  ASSERT_EQ(::chmod(path.c_str(), 04755), 0);
  write_file(path, "new");
  EXPECT_EQ(mode_of(path), 0755u) << "other content is not to run as its owner";
}

TEST(CheckOutput, RefusesInputsByWhateverName) {
  TemporaryFolder folder;
  const std::vector<std::string> inputs = {folder.file("absent"), "", folder.write("in", "input")};
  std::filesystem::create_symlink("in", folder.file("symlink"));
  std::filesystem::create_hard_link(folder.file("in"), folder.file("link"));
  for (const char* name : {"in", "symlink", "link"})
    expect_error([&] { check_output(folder.file(name), inputs); }, ErrorCode::usage,
                 {folder.file(name), "is an input", "in"});
  folder.write("old", "output");
  check_output(folder.file("old"), inputs);
  check_output(folder.file("new"), inputs);
  EXPECT_EQ(folder.names(), (Names{"in", "link", "old", "symlink"}));
  EXPECT_EQ(read_all(folder.file("in")) + read_all(folder.file("old")), "inputoutput");
}

TEST(CheckOutput, SaysWhatCannotBeWritten) {
  TemporaryFolder folder;
  expect_error([&] { check_output(folder.path(), {}); }, ErrorCode::usage, {"is a folder"});
  expect_error([&] { check_output(folder.file("no/out"), {}); }, ErrorCode::io, {"cannot create"});
}

TEST(AtomicFile, RefusesDestinationsThatAreNoFiles) {
  TemporaryFolder folder;
  expect_error([&] { AtomicFile file(folder.path()); }, ErrorCode::usage, {"is a folder"});
  expect_error([&] { AtomicFile file("/dev/null"); }, ErrorCode::usage, {"not a regular file"});
  expect_error([&] { AtomicFile file(""); }, ErrorCode::usage, {"empty"});
  EXPECT_EQ(folder.names(), Names{});
}

TEST(AtomicFile, ReportsFoldersThatCannotBeWritten) {
  TemporaryFolder folder;
  folder.write("plain", "");
  expect_error([&] { AtomicFile file(folder.file("no/such/out")); }, ErrorCode::io,
               {"no/such/out", "cannot create", "No such file"});
  expect_error([&] { AtomicFile file(folder.file("plain/out")); }, ErrorCode::io,
               {"Not a directory"});
  expect_error([&] { AtomicFile file("/proc/walsh-out"); }, ErrorCode::io, {"cannot create"});
  if (::geteuid() == 0) return;  // root may write everywhere
  std::filesystem::create_directory(folder.file("locked"));
  ::chmod(folder.file("locked").c_str(), 0500);
  expect_error([&] { AtomicFile file(folder.file("locked/out")); }, ErrorCode::io,
               {"Permission denied"});
}

TEST(AtomicFile, FullDiskLeavesTheOldFileAndNothingElse) {
  TemporaryFolder folder;
  folder.write("out", "old");
  {
    const FileSizeLimit limit(4096);
    AtomicFile file(folder.file("out"));
    // The first write is cut short at the limit, the rest of it fails.
    expect_error([&] { file.append(Bytes(10'000)); }, ErrorCode::io,
                 {folder.file("out"), "cannot write", "File too large"});
    expect_error([&] { file.resize(10'000); }, ErrorCode::io, {"cannot resize"});
  }
  EXPECT_EQ(read_all(folder.file("out")), "old");
  EXPECT_EQ(folder.names(), Names{"out"});
}

TEST(AtomicFile, ReservationThatCannotBeMetIsReportedAtOnce) {
  TemporaryFolder folder;
  try {
    AtomicFile file(folder.file("out"), uint64_t{1} << 60);
    GTEST_SKIP() << "this file system does not reserve space";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("cannot reserve 1152921504606846976 bytes"));
  }
  EXPECT_EQ(folder.names(), Names{});
  expect_error([&] { AtomicFile file(folder.file("out"), ~0ull); }, ErrorCode::io, {"reserve"});
  EXPECT_EQ(folder.names(), Names{});
}

TEST(AtomicFile, FailedRenameLeavesNothing) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder.file("out"));
    file.append(to_bytes("x"));
    std::filesystem::create_directory(folder.file("out"));
    expect_error([&] { file.commit(); }, ErrorCode::io, {"cannot rename", "Is a directory"});
  }
  EXPECT_EQ(folder.names(), Names{"out"});
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("out")));
}

TEST(AtomicFile, VanishedTemporaryFileIsReported) {
  TemporaryFolder folder;
  AtomicFile file(folder.file("out"));
  std::filesystem::remove(file.temporary_path());
  expect_error([&] { file.commit(); }, ErrorCode::io, {"cannot rename", "No such file"});
  EXPECT_EQ(folder.names(), Names{});
}

TEST(AtomicFile, KilledProcessLeavesOnlyARecognizableTemporaryFile) {
  TemporaryFolder folder;
  folder.write("out", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile file(folder.file("out"));
    file.append(to_bytes("half"));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_all(folder.file("out")), "old");
  const auto names = folder.names();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0], "out");
  EXPECT_THAT(names[1], ::testing::StartsWith("out."));
  EXPECT_THAT(names[1], ::testing::EndsWith(kTemporarySuffix));
  // The next attempt removes the leftover.
  write_file(folder.file("out"), "new");
  EXPECT_EQ(read_all(folder.file("out")), "new");
  EXPECT_EQ(folder.names(), Names{"out"});
}

TEST(AtomicFile, KeepsWhatRunningProcessesAndOtherOutputsHave) {
  TemporaryFolder folder;
  AtomicFile running(folder.file("out"));
  running.append(to_bytes("running"));
  for (const char* name : {"out.x-1.walsh-tmp", "out.1-.walsh-tmp", "out.1-2", "out2.1-2.walsh-tmp",
                           "out.1-2.walsh-tmp.bak", "outer.1-2.walsh-tmp"}) {
    folder.write(name, "another's");
  }
  const size_t before = folder.names().size();
  folder.write("out.1-2.walsh-tmp", "leftover");
  write_file(folder.file("out"), "new");
  EXPECT_EQ(folder.names().size(), before + 1);
  running.commit();
  EXPECT_EQ(read_all(folder.file("out")), "running");
}

// The name of a temporary file is longer than that of the output, and file systems take 255 bytes.
TEST(AtomicFile, OutputsMayHaveTheLongestNamesOfTheSystem) {
  TemporaryFolder folder;
  std::string umlauts;  // a cut after 223 bytes would divide a character
  while (umlauts.size() < 254)
    umlauts += "\u00fc";
  for (const auto& [name, beginning] : {std::pair{std::string(255, 'a'), std::string(223, 'a')},
                                        std::pair{std::string(223, 'b'), std::string(223, 'b')},
                                        std::pair{umlauts, umlauts.substr(0, 222)}}) {
    {
      AtomicFile dropped(folder.file(name));
      dropped.append(to_bytes("text"));
      EXPECT_THAT(folder.names(), testing::ElementsAre(testing::StartsWith(beginning + ".")));
    }
    EXPECT_EQ(folder.names(), Names{});
    folder.write(beginning + ".1-2.walsh-tmp", "leftover");
    write_file(folder.file(name), "text");
    EXPECT_EQ(folder.names(), Names{name});
    std::filesystem::remove(folder.file(name));
  }
  expect_error([&] { write_file(folder.file(std::string(256, 'a')), "text"); }, ErrorCode::io,
               {"cannot create", "File name too long"});
  EXPECT_EQ(folder.names(), Names{});
}

TEST(WriteFully, ReportsAFullDevice) {
  const int fd = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  expect_error([&] { detail::write_fully(fd, 0, to_bytes("x"), "model.gguf"); }, ErrorCode::io,
               {"model.gguf", "cannot write", "No space left on device"});
  EXPECT_NO_THROW(detail::write_fully(fd, 0, {}, "model.gguf"));
  ::close(fd);
}

TEST(WriteFully, RefusesOffsetsBeyondTheSystem) {
  TemporaryFolder folder;
  AtomicFile file(folder.file("out"));
  for (const uint64_t offset : {uint64_t{1} << 63, ~uint64_t{0}}) {
    expect_error([&] { file.write_at(offset, to_bytes("x")); }, ErrorCode::io, {"too large"});
  }
  expect_error([&] { file.resize(~uint64_t{0}); }, ErrorCode::io, {"too large"});
  expect_error([&] { detail::write_fully(-1, 0, to_bytes("x"), "f"); }, ErrorCode::io,
               {"Bad file descriptor"});
}

}  // namespace
}  // namespace walsh
