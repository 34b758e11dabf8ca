// Slots: strides and alignment, pins, what lands where, and faults that leave a slot empty.
#include "experts/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "experts/expert_fixture.h"

namespace weir {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

class Cache : public testing::TestWithParam<uint64_t> {
 protected:
  void open(int slots) {
    ReaderOptions options;
    options.alignment_override = GetParam();
    if (GetParam() < 512) options.mode = IoMode::buffered;
    reader_ = ExpertReader::open(file_.store.files(), options);
    cache_ = std::make_unique<ExpertCache>(*device_, file_.store, *reader_, std::vector<int>{slots, 0, slots},
                                           ExpertPolicy::lfu);
  }
  /// Plans and reads `needed`; returns the experts in the order in which they landed.
  Ids fetch(int layer, const Ids& needed, std::vector<std::string>* faults = nullptr) {
    const FetchPlan plan = cache_->plan(layer, needed, Ids(needed.size(), 1));
    Ids landed;
    for (const Wave& wave : plan.waves) {
      std::vector<ExpertPin> pins;
      for (const Fetch& hit : wave.hits) pins.push_back(cache_->pin(layer, hit.slot));
      cache_->submit(layer, wave);
      Fault fault;
      for (int i; (i = cache_->next_landed(true, fault)) >= 0;) {
        landed.push_back(wave.misses[static_cast<size_t>(i)].expert);
        if (faults) faults->push_back(fault.message);
      }
      for (const Fetch& f : wave.hits) expect_bytes(layer, f);
      if (!faults)
        for (const Fetch& f : wave.misses) expect_bytes(layer, f);
    }
    return landed;
  }
  void expect_bytes(int layer, const Fetch& f) {
    const ExpertCache::Weights w = cache_->weights(layer, f.expert, f.slot);
    const auto same = [](const Matrix& m, const std::vector<uint8_t>& bytes, size_t at) {
      return std::equal(bytes.begin() + static_cast<ptrdiff_t>(at),
                        bytes.begin() + static_cast<ptrdiff_t>(at + m.bytes()),
                        static_cast<const uint8_t*>(m.data));
    };
    EXPECT_EQ(w.gate.out, 32);
    EXPECT_EQ(w.down.out, 64);
    const bool fused = file_.store.layer(layer).parts.size() == 2;
    EXPECT_TRUE(same(w.gate, file_.slice(layer, 0, f.expert), 0));
    EXPECT_TRUE(same(w.up, file_.slice(layer, fused ? 0 : 1, f.expert), fused ? w.gate.bytes() : 0));
    EXPECT_TRUE(same(w.down, file_.slice(layer, fused ? 1 : 2, f.expert), 0));
  }
  test::ExpertFile file_;
  std::unique_ptr<Device> device_ = test::make_test_device(1);
  std::unique_ptr<ExpertReader> reader_;
  std::unique_ptr<ExpertCache> cache_;
};

// What lies together can lie in huge pages, and a read into those is one piece.
TEST_P(Cache, TheSlotsOfAllLayersLieTogether) {
  open(4);
  const uint8_t *lowest = nullptr, *highest = nullptr;
  uint64_t bytes = 0;
  for (const int layer : {0, 2}) {
    bytes += 4 * ExpertCache::slot_bytes(file_.store.layer(layer), reader_->alignment());
    fetch(layer, {0, 1, 2, 3});
    for (int32_t expert = 0; expert < 4; ++expert) {
      const auto w = cache_->weights(layer, expert, cache_->slots(layer).slot_of_expert[size_t(expert)]);
      for (const Matrix& m : {w.gate, w.up, w.down}) {
        const auto* data = static_cast<const uint8_t*>(m.data);
        lowest = lowest ? std::min(lowest, data) : data;
        highest = std::max(highest, data + m.bytes());
      }
    }
  }
  EXPECT_LE(static_cast<uint64_t>(highest - lowest), bytes);
}

TEST_P(Cache, AResetCacheIsAsNew) {
  open(4);
  const SlotsState fresh = cache_->state();
  EXPECT_EQ(fresh.slots, 8u) << "4 in each of two layers";
  EXPECT_EQ(fresh.filled, 0u);
  fetch(0, {1, 5, 7});
  fetch(2, {2});
  const SlotsState used = cache_->state();
  EXPECT_EQ(used.filled, 4u);
  EXPECT_NE(used.fingerprint, fresh.fingerprint);
  cache_->reset();
  EXPECT_EQ(cache_->state().filled, 0u);
  EXPECT_EQ(cache_->state().fingerprint, fresh.fingerprint);
  EXPECT_EQ(fetch(0, {1, 5, 7}).size(), 3u) << "all are read again";
  EXPECT_NE(cache_->state().fingerprint, used.fingerprint);
  fetch(2, {2});
  EXPECT_EQ(cache_->state().fingerprint, used.fingerprint) << "same use, same state";
  fetch(2, {2});
  EXPECT_NE(cache_->state().fingerprint, used.fingerprint) << "same experts, but the policy remembers more";
}

INSTANTIATE_TEST_SUITE_P(Alignments, Cache, testing::Values(1, 64, 512, 4096, 16384, 1 << 20));

TEST_P(Cache, HoldsTheBytesOfEveryExpertInLayersOfDifferentSizes) {
  open(5);
  for (const int layer : {0, 2, 0, 2}) {
    for (int32_t e = 0; e < 12; e += 2) fetch(layer, {e, e + 1});
    fetch(layer, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  }
}

TEST_P(Cache, StrideHasRoomForEveryRemainder) {
  open(3);
  const uint64_t alignment = reader_->alignment();
  uint64_t expected = 0;
  for (const int layer : {0, 2}) {
    const uint64_t bytes = ExpertCache::slot_bytes(file_.store.layer(layer), alignment);
    uint64_t sum = 0;
    for (const ExpertPart& part : file_.store.layer(layer).parts) sum += reader_->stride(part.bytes);
    EXPECT_EQ(bytes, sum);
    EXPECT_EQ(bytes % alignment, 0u);
    expected += 3 * bytes;
  }
  EXPECT_GE(cache_->slot_memory_bytes(), expected);
  EXPECT_LE(cache_->slot_memory_bytes(), expected + 2 * (alignment + 4096));
}

TEST_P(Cache, HitsAreNotReadAgain) {
  open(4);
  EXPECT_EQ(fetch(0, {1, 2, 3}).size(), 3u);
  EXPECT_EQ(fetch(0, {1, 2, 3}).size(), 0u);
  EXPECT_EQ(fetch(0, {2, 3, 4}), Ids{4});
  EXPECT_EQ(fetch(2, {2, 3, 4}).size(), 3u) << "layers do not share slots";
}

TEST_P(Cache, AFailedReadEmptiesItsSlotAndOnlyThat) {
  open(4);
  fetch(0, {1});
  // Cut the file within the last expert of layer 2's down tensor, the last one in the file.
  const ExpertPart& down = file_.store.layer(2).parts[1];
  ASSERT_EQ(::truncate(file_.path.c_str(), static_cast<off_t>(down.offset + 12 * down.bytes - 5)), 0);
  std::vector<std::string> faults;
  const Ids landed = fetch(2, {9, 10, 11}, &faults);
  ASSERT_EQ(landed.size(), 3u) << "a failed read is over, too";
  for (size_t i = 0; i < 3; ++i)
    EXPECT_THAT(faults[i], landed[i] == 11
                               ? HasSubstr(fmt::format("{}: wanted {} bytes at offset {}", file_.path,
                                                       down.bytes, down.offset + 11 * down.bytes))
                               : HasSubstr(""));
  EXPECT_EQ(std::count(faults.begin(), faults.end(), ""), 2);
  EXPECT_EQ(cache_->slots(2).slot_of_expert[11], -1);
  EXPECT_GE(cache_->slots(2).slot_of_expert[10], 0);
  EXPECT_EQ(fetch(2, {9, 10}).size(), 0u);
  faults.clear();
  EXPECT_EQ(fetch(2, {11}, &faults), Ids{11}) << "tried again, not taken for present";
}

TEST_P(Cache, AWaveThatIsAbandonedLeavesNothingThatCouldBeTakenForPresent) {
  open(4);
  fetch(0, {1, 2});
  {
    const Ids needed = {3, 4, 5, 6, 7};
    const FetchPlan plan = cache_->plan(0, needed, Ids(needed.size(), 1));
    ASSERT_GT(plan.waves.size(), 1u);
    cache_->submit(0, plan.waves[0]);  // and an error keeps us from taking it and from the other waves
  }
  // 3, 4, 5 and 6 have landed, one of them in the slot that was planned for 7: that one and 7 are read.
  EXPECT_EQ(fetch(0, {3, 4, 5, 6, 7}).size(), 2u);
  for (int32_t e = 0; e < 12; ++e) fetch(0, {e});
}

TEST(CacheDeathTest, RefillingAPinnedSlotIsABugOfOurs) {
  const test::ExpertFile file;
  auto device = test::make_test_device(1);
  auto reader = ExpertReader::open(file.store.files(), {});
  ExpertCache cache(*device, file.store, *reader, {1, 0, 1}, ExpertPolicy::lfu);
  const auto read = [&](int32_t e) {
    const FetchPlan plan = cache.plan(0, Ids{e}, Ids{1});
    cache.submit(0, plan.waves[0]);
    Fault fault;
    while (cache.next_landed(true, fault) >= 0) {
    }
  };
  read(1);
  {
    ExpertPin first = cache.pin(0, 0);
    ExpertPin second = cache.pin(0, 0);
    second = ExpertPin();  // pins are counted
    EXPECT_DEATH(read(2), "refilling slot 0 of layer 0: 1 pins");
    const FetchPlan hit = cache.plan(0, Ids{1}, Ids{1});
    cache.submit(0, hit.waves[0]);  // a pinned hit is fine
  }
  read(2);
  EXPECT_DEATH(cache.weights(0, 1, 0), "slot 0 holds 2, not 1");
  const FetchPlan unpinned = cache.plan(0, Ids{2}, Ids{1});
  EXPECT_DEATH(cache.submit(0, unpinned.waves[0]), "not pinned");
}

/// A reader against its own contract: it throws, or it forgets what it was given.
class BrokenReader final : public ExpertReader {
 public:
  bool throws = false, forgets = false;
  void submit(std::span<const ReadRequest> requests) override {
    for (const ReadRequest& r : requests) waiting_.push_back(r.tag);
  }
  std::optional<ReadDone> next(bool) override {
    if (throws) throw std::bad_alloc();
    if (forgets) waiting_.clear();
    if (waiting_.empty()) return std::nullopt;
    const uint32_t tag = waiting_.back();
    waiting_.pop_back();
    return ReadDone{tag, {}};
  }
  int in_flight() const override { return static_cast<int>(waiting_.size()); }
  std::string description() const override { return "broken"; }
  bool direct() const override { return false; }
  uint64_t page_cache_bytes() const override { return 0; }
  ExpertCounters take_counters() override { return {}; }

 private:
  std::vector<uint32_t> waiting_;
};

TEST(CacheOfABrokenReader, FailsRequestsAndNeverTheProcess) {
  const test::ExpertFile file;
  const auto device = test::make_test_device(1);
  for (const bool throws : {false, true}) {
    BrokenReader reader;
    ExpertCache cache(*device, file.store, reader, {2, 0, 2}, ExpertPolicy::lfu);
    const Ids needed{0, 1}, uses{1, 1};
    cache.submit(0, cache.plan(0, needed, uses).waves.front());
    (throws ? reader.throws : reader.forgets) = true;
    const FetchPlan plan = cache.plan(0, needed, uses);  // abandons
    reader.throws = reader.forgets = false;
    EXPECT_THROW(cache.submit(0, plan.waves.front()), Error);
    EXPECT_THROW(cache.submit(0, plan.waves.front()), Error);
  }
}

}  // namespace
}  // namespace weir
