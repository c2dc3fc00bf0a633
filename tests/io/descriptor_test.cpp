#include "io/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "io/atomic_file.h"
#include "io/mapped_file.h"
#include "io_testing.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

// Opens files in a process without standard descriptors; exits with 0 if none gets number 0 to 2.
[[noreturn]] void open_files_without_standard_descriptors(const std::string& path) {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    ::close(fd);
  const auto free = [] {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      if (::fcntl(fd, F_GETFD) != -1) return false;
    return true;
  };
  AtomicFile file(path);
  bool all = free();
  file.append(testing::to_bytes("content"));
  static_cast<void>(!::write(STDERR_FILENO, "message", 7));
  file.commit();
  all = free() && all && read_text_file(path, 100) == "content";
  const Descriptor opened(open_descriptor(path, O_RDONLY));
  all = all && opened.get() >= 3 && (::fcntl(opened.get(), F_GETFD) & FD_CLOEXEC) != 0;
  std::_Exit(all && free() ? 0 : 1);
}

TEST(DescriptorDeathTest, FilesNeverTakeThePlaceOfStandardDescriptors) {
  TemporaryFolder folder;
  EXPECT_EXIT(open_files_without_standard_descriptors(folder.file("out")),
              ::testing::ExitedWithCode(0), "");
}

TEST(Descriptor, FailuresKeepTheirReason) {
  TemporaryFolder folder;
  EXPECT_EQ(open_descriptor(folder.file("absent"), O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(ReadTextInput, ReadsAPipeToItsEnd) {
  TemporaryFolder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string text(300'000, 'x');
  std::thread writer([&] {
    const Descriptor out(::open(fifo.c_str(), O_WRONLY));
    for (size_t at = 0; at < text.size();) {
      const ssize_t wrote = ::write(out.get(), text.data() + at, text.size() - at);
      ASSERT_GT(wrote, 0);
      at += static_cast<size_t>(wrote);
    }
  });
  EXPECT_TRUE(read_text_input(fifo, 1 << 20) == text);
  writer.join();
}

TEST(ReadTextInput, ReadsFilesAndRefusesFolders) {
  TemporaryFolder folder;
  EXPECT_EQ(read_text_input(folder.write("a", "text"), 4), "text");
  EXPECT_EQ(read_text_input("/dev/null", 4), "");
  expect_error([&] { read_text_input(folder.file("a"), 3); }, ErrorCode::limit, {"3 bytes"});
  expect_error([&] { read_text_input(folder.path(), 3); }, ErrorCode::bad_input, {"is a folder"});
  expect_error([&] { read_text_input("/dev/zero", 1000); }, ErrorCode::limit, {"1000 bytes"});
}

TEST(ReadTextInput, WaitsForAWriterNoLongerThanItIsWanted) {
  TemporaryFolder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::atomic<bool> flag = false;
  const StopScope scope(flag);
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    flag = true;
  });
  expect_error([&] { read_text_input(fifo, 10); }, ErrorCode::interrupted, {});
  stopper.join();
}

}  // namespace
}  // namespace walsh
