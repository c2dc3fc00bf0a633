// Reads any bytes as the file of a prefix, as they are and with the checksums that belong to them.
// A session refuses them or goes on from them, with every kind of cache and with recurrent layers.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "arch/config.h"
#include "base/thread_pool.h"
#include "codec/format.h"
#include "model/session.h"
#include "model/synthetic.h"
#include "schedule/prefix_file.h"
#include "walsh/error.h"

namespace {

constexpr size_t kTokens = 80, kSavedBytes = 88, kSavedSum = 96, kHeadSum = 112, kHead = 128;
constexpr int64_t kPositions = 128;

// Makes lengths and checksums right, which mutations would never find.
std::vector<std::byte> sealed(std::span<const std::byte> input) {
  std::vector<std::byte> file(input.begin(), input.end());
  if (file.size() < kHead) return file;
  std::memcpy(file.data(), "walshkv\n\1\0\0\0\0\0\0", 16);
  uint64_t tokens = 0;
  std::memcpy(&tokens, file.data() + kTokens, sizeof(tokens));
  tokens %= kPositions + 2;
  if (tokens * 4 > file.size() - kHead) return file;
  const size_t head = kHead + tokens * 4;
  const uint64_t saved = file.size() - head;
  std::memcpy(file.data() + kTokens, &tokens, sizeof(tokens));
  std::memcpy(file.data() + kSavedBytes, &saved, sizeof(saved));
  const auto put = [&](size_t place, const walsh::Checksum& sum) {
    std::memcpy(file.data() + place, &sum.low, 8);
    std::memcpy(file.data() + place + 8, &sum.high, 8);
  };
  put(kSavedSum, walsh::checksum(std::span(file).subspan(head)));
  put(kHeadSum, walsh::checksum_without(std::span(file).first(head), kHeadSum, 16));
  return file;
}

struct Restored {
  Restored(walsh::ThreadPool& pool, const char* shape, const char* cache) {
    const walsh::Format& f16 = walsh::get_format("f16");
    walsh::SyntheticSource source(shape, {&walsh::get_format("tq4"), &f16, &f16});
    walsh::LoadOptions options;
    options.pool = &pool;
    options.cache = {&walsh::get_cache_type(cache), &walsh::get_cache_type(cache), 32};
    model = std::make_unique<walsh::Model>(walsh::Model::load(
        source, walsh::parse_config(source.config_json(), source.path()), options));
    walsh::SessionOptions sessions;
    sessions.max_positions = kPositions;
    sessions.snapshots = 2;
    session = std::make_unique<walsh::Session>(*model, sessions);
    session->close(0);
  }

  std::unique_ptr<walsh::Model> model;
  std::unique_ptr<walsh::Session> session;
};

void restore(walsh::Session& session, std::span<const std::byte> file) {
  const auto read = [&](uint64_t offset, std::span<std::byte> to) {
    if (offset > file.size() || to.size() > file.size() - offset) std::abort();
    std::memcpy(to.data(), file.data() + offset, to.size());
  };
  try {
    const walsh::PrefixHead head = walsh::read_prefix_head(file.size(), read);
    if (head.file_bytes() != file.size()) std::abort();
    walsh::PrefixReader reader(head, read);
    const int64_t sequence = session.restore(std::ssize(head.tokens), reader);
    const int32_t token = 1;
    try {
      reader.finish();
      session.forward(
          {&token, 1}, [](int64_t, std::span<const float>) {}, 0, sequence);
      session.truncate(session.position(sequence) / 2, sequence);
      session.forward(
          {&token, 1}, [](int64_t, std::span<const float>) {}, 0, sequence);
    } catch (const walsh::Error&) {
    }
    session.close(sequence);
  } catch (const walsh::Error&) {
  }
  if (session.pages().free_pages() != session.pages().shape().pages) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static walsh::ThreadPool pool(1);
  static Restored all[] = {{pool, "tiny", "f16"},
                           {pool, "tiny", "q8_0"},
                           {pool, "tiny", "kt3"},
                           {pool, "tiny-delta", "f16"}};
  if (size < 1) return 0;
  walsh::Session& session = *all[data[0] % std::size(all)].session;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  restore(session, input);
  restore(session, sealed(input));
  return 0;
}
