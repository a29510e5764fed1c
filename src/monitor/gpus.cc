// SPDX-License-Identifier: Apache-2.0

#include "monitor/gpus.h"

#include <algorithm>
#include <thread>

#include "base/log.h"

namespace hami::monitor {

// Outlives the sampler if the thread does not come back.
struct GpuSampler::Shared {
  Shared(MakeGpuSource make_source, Pace given_pace)
      : make(std::move(make_source)), pace(given_pace), last(std::make_shared<const GpusPicture>(Blank())) {}

  GpusPicture Blank() const {
    GpusPicture picture;
    picture.interval = pace.interval;
    return picture;
  }
  void Publish(GpusPicture picture) {
    auto next = std::make_shared<const GpusPicture>(std::move(picture));
    const std::lock_guard lock(mutex);
    last = std::move(next);
  }
  void Succeed(std::vector<GpuPicture> gpus) {
    GpusPicture picture = Blank();
    picture.taken = std::chrono::steady_clock::now();
    picture.answering = true;
    picture.gpus = std::move(gpus);
    Publish(std::move(picture));
  }
  // Only this thread publishes, so the last picture can not change meanwhile.
  void Fail(const std::string& trouble) {
    GpusPicture picture = *last;
    picture.answering = false;
    picture.trouble = trouble;
    Publish(std::move(picture));
  }

  const MakeGpuSource make;
  const Pace pace;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<const GpusPicture> last;
  bool stopping = false;
  bool ended = false;
};

GpuSampler::GpuSampler(MakeGpuSource make, Pace pace) : shared_(std::make_shared<Shared>(std::move(make), pace)) {
  std::thread([shared = shared_] { Run(shared); }).detach();
}

GpuSampler::~GpuSampler() { Stop(std::chrono::seconds(2)); }

std::shared_ptr<const GpusPicture> GpuSampler::Last() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->last;
}

bool GpuSampler::Stop(std::chrono::milliseconds patience) {
  if (std::exchange(stopped_, true)) return true;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  return shared_->changed.wait_for(lock, patience, [this] { return shared_->ended; });
}

void GpuSampler::Run(const std::shared_ptr<Shared>& shared) {
  XidCounts heard;
  std::unique_ptr<GpuSource> source;
  std::chrono::milliseconds retry = shared->pace.first_retry;
  std::string told;
  for (;;) {
    std::chrono::milliseconds pause = shared->pace.interval;
    base::Status made;
    if (!source) {
      auto fresh = shared->make(heard);
      if (fresh)
        source = *std::move(fresh);
      else
        made = tl::unexpected(fresh.error());
    }
    auto gpus = source ? source->Look() : base::Result<std::vector<GpuPicture>>(tl::unexpected(made.error()));
    if (gpus) {
      shared->Succeed(*std::move(gpus));
      retry = shared->pace.first_retry;
      told.clear();
    } else {
      source.reset();
      const std::string& trouble = gpus.error().message;
      if (told != trouble) base::LogWarning("no figures of the GPUs: " + trouble);
      told = trouble;
      shared->Fail(trouble);
      pause = retry;
      retry = std::min(retry * 2, shared->pace.most_retry);
    }
    std::unique_lock lock(shared->mutex);
    if (shared->changed.wait_for(lock, pause, [&] { return shared->stopping; })) break;
  }
  source.reset();
  const std::lock_guard lock(shared->mutex);
  shared->ended = true;
  shared->changed.notify_all();
}

}  // namespace hami::monitor
