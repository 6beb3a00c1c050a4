// Delegates of ExecuTorch's runtime whose work Python does: init, execute and destroy call functions that Python gave.
//
// Built against the headers and the library of one version of the wheel `executorch`, which promises no stable C++
// interface. Nothing here knows Python: the functions take and return plain C types, and return ExecuTorch's error codes.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/core/named_data_map.h>
#include <executorch/runtime/platform/log.h>
#include <executorch/runtime/platform/platform.h>

using namespace executorch::runtime;

#define DK_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" {

// An argument of a call. `kind`: 0 is a tensor, 1 a number or nothing, 2 anything else.
struct DkArgument {
  void* data;
  int64_t nbytes;
  int32_t kind;
  int32_t dtype;
  int32_t dynamic;
  int32_t ndim;
  const int32_t* sizes;
  const int32_t* strides;
  const uint8_t* order;
};

struct DkSpec {
  const char* key;
  const void* value;
  int64_t nbytes;
};

struct DkBlob {
  const char* backend;
  const char* method;
  const void* data;
  int64_t nbytes;
  const DkSpec* specs;
  int64_t spec_count;
};

typedef int32_t (*DkAvailable)(const char* backend);
typedef int32_t (*DkInit)(void* delegate, const DkBlob* blob);
typedef int32_t (*DkExecute)(void* delegate, void* call, int32_t traced, int32_t count, const DkArgument* arguments);
typedef void (*DkDestroy)(void* delegate);
typedef int (*DkHoldsLock)();
}

namespace {

struct Callbacks {
  DkAvailable available;
  DkInit init;
  DkExecute execute;
  DkDestroy destroy;
  // PyGILState_Check.
  DkHoldsLock holds_lock;
};

Callbacks g_callbacks = {};
// False before Python gave its functions, and again when Python ends: delegates may be destroyed after that.
std::atomic<bool> g_open{false};

// ExecuTorch's binding redirects C++'s streams to Python's for the length of a call, and relies on no other thread
// calling meanwhile: threads that take turns would leave a stream with another call's buffer, which is gone. Python code
// lets threads take turns. So while it runs, the streams are what they were before any call. Only a thread that holds
// Python's lock is inside such a call.
class Streams {
 public:
  Streams() : held_(g_callbacks.holds_lock() != 0) {
    if (held_) {
      out_ = std::cout.rdbuf(original_out());
      err_ = std::cerr.rdbuf(original_err());
    }
  }
  ~Streams() {
    if (held_) {
      std::cout.rdbuf(out_);
      std::cerr.rdbuf(err_);
    }
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // First called outside of any call.
  static std::streambuf* original_out() {
    static std::streambuf* const found = std::cout.rdbuf();
    return found;
  }
  static std::streambuf* original_err() {
    static std::streambuf* const found = std::cerr.rdbuf();
    return found;
  }

 private:
  const bool held_;
  std::streambuf* out_ = nullptr;
  std::streambuf* err_ = nullptr;
};

// What a delegate borrows from its file while it lives.
struct Delegate {
  const NamedDataMap* named = nullptr;
  std::deque<FreeableBuffer> borrowed;
};

struct Call {
  Span<EValue*> arguments;
  EventTracer* tracer;
};

// Codes come from Python: only those of a failure may stand for one.
Error as_error(int32_t code) {
  return code == 0 ? Error::Ok : static_cast<Error>(code);
}

DkArgument described(EValue* value) {
  DkArgument found = {};
  if (value == nullptr || value->isNone() || value->isInt() || value->isDouble() || value->isBool()) {
    found.kind = 1;
  } else if (!value->isTensor()) {
    found.kind = 2;
  } else {
    const auto& tensor = value->toTensor();
    const auto* impl = tensor.unsafeGetTensorImpl();
    found.data = impl->mutable_data();
    found.nbytes = static_cast<int64_t>(impl->nbytes());
    found.dtype = static_cast<int32_t>(impl->scalar_type());
    found.dynamic = impl->shape_dynamism() != TensorShapeDynamism::STATIC;
    found.ndim = static_cast<int32_t>(impl->dim());
    found.sizes = impl->sizes().data();
    found.strides = impl->strides().data();
    found.order = impl->dim_order().data();
  }
  return found;
}

class Host final : public BackendInterface {
 public:
  explicit Host(const char* name) : name_(name) {}

  const char* name() const {
    return name_.c_str();
  }

  bool is_available() const override {
    if (!g_open) {
      return false;
    }
    const Streams streams;
    return g_callbacks.available(name_.c_str()) != 0;
  }

  Result<DelegateHandle*> init(
      BackendInitContext& context,
      FreeableBuffer* processed,
      ArrayRef<CompileSpec> compile_specs) const override {
    if (!g_open) {
      return Error::InvalidState;
    }
    try {
      std::vector<DkSpec> specs;
      specs.reserve(compile_specs.size());
      for (const auto& spec : compile_specs) {
        specs.push_back({spec.key, spec.value.buffer, static_cast<int64_t>(spec.value.nbytes)});
      }
      const char* method = context.get_method_name();
      const DkBlob blob = {
          name_.c_str(),
          method == nullptr ? "forward" : method,
          processed->data(),
          static_cast<int64_t>(processed->size()),
          specs.data(),
          static_cast<int64_t>(specs.size())};
      auto* delegate = new Delegate();
      delegate->named = context.get_named_data_map();
      const Error error = [&] {
        const Streams streams;
        return as_error(g_callbacks.init(delegate, &blob));
      }();
      if (error != Error::Ok) {
        release(delegate);
        return error;
      }
      return static_cast<DelegateHandle*>(delegate);
    } catch (const std::bad_alloc&) {
      return Error::MemoryAllocationFailed;
    } catch (...) {
      return Error::Internal;
    }
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* handle, Span<EValue*> arguments) const override {
    if (!g_open) {
      return Error::InvalidState;
    }
    try {
      std::vector<DkArgument> described_arguments;
      described_arguments.reserve(arguments.size());
      for (auto* value : arguments) {
        described_arguments.push_back(described(value));
      }
      Call call = {arguments, context.event_tracer()};
      const Streams streams;
      return as_error(g_callbacks.execute(
          handle,
          &call,
          call.tracer != nullptr,
          static_cast<int32_t>(described_arguments.size()),
          described_arguments.data()));
    } catch (const std::bad_alloc&) {
      return Error::MemoryAllocationFailed;
    } catch (...) {
      return Error::Internal;
    }
  }

  void destroy(DelegateHandle* handle) const override {
    if (g_open) {
      const Streams streams;
      g_callbacks.destroy(handle);
    }
    release(static_cast<Delegate*>(handle));
  }

 private:
  static void release(Delegate* delegate) {
    for (auto& buffer : delegate->borrowed) {
      buffer.Free();
    }
    delete delegate;
  }

  const std::string name_;
};

} // namespace

// Python's functions; called once, before anything is registered.
DK_EXPORT void dk_open(
    DkAvailable available, DkInit init, DkExecute execute, DkDestroy destroy, DkHoldsLock holds_lock) {
  g_callbacks = {available, init, execute, destroy, holds_lock};
  Streams::original_out();
  Streams::original_err();
  g_open = true;
}

// Python ends: no function of it is called any more.
DK_EXPORT void dk_close() {
  g_open = false;
}

// The code of an error, 0 for success. The registered object lives as long as the process, as ExecuTorch's own do.
DK_EXPORT int32_t dk_register(const char* name) {
  auto* host = new (std::nothrow) Host(name);
  if (host == nullptr) {
    return static_cast<int32_t>(Error::MemoryAllocationFailed);
  }
  const Error error = register_backend({host->name(), host});
  if (error != Error::Ok) {
    delete host;
  }
  return static_cast<int32_t>(error);
}

// Named data of a delegate's file, which stays in memory until the delegate is destroyed.
DK_EXPORT int32_t dk_named(void* handle, const char* key, const void** data, int64_t* nbytes) {
  auto* delegate = static_cast<Delegate*>(handle);
  if (delegate->named == nullptr) {
    return static_cast<int32_t>(Error::NotFound);
  }
  auto found = delegate->named->get_data(key);
  if (!found.ok()) {
    return static_cast<int32_t>(found.error());
  }
  delegate->borrowed.push_back(std::move(found.get()));
  *data = delegate->borrowed.back().data();
  *nbytes = static_cast<int64_t>(delegate->borrowed.back().size());
  return 0;
}

DK_EXPORT int64_t dk_named_count(void* handle) {
  auto* delegate = static_cast<Delegate*>(handle);
  if (delegate->named == nullptr) {
    return 0;
  }
  auto count = delegate->named->get_num_keys();
  return count.ok() ? static_cast<int64_t>(count.get()) : 0;
}

DK_EXPORT const char* dk_named_key(void* handle, int64_t index) {
  auto found = static_cast<Delegate*>(handle)->named->get_key(static_cast<uint32_t>(index));
  return found.ok() ? found.get() : nullptr;
}

// Resizes an argument of the call that is being executed; never beyond the memory that the file plans for it.
DK_EXPORT int32_t dk_resize(void* call, int32_t position, int32_t ndim, const int32_t* sizes) {
  auto tensor = static_cast<Call*>(call)->arguments[position]->toTensor();
  return static_cast<int32_t>(resize_tensor(tensor, {sizes, static_cast<size_t>(ndim)}));
}

// ExecuTorch's clock.
DK_EXPORT uint64_t dk_ticks() {
  return pal_current_ticks();
}

// An operator of the call that is being executed, for ETDump. Without `name`, `identifier` names it.
DK_EXPORT void dk_event(
    void* call, const char* name, int64_t identifier, uint64_t start, uint64_t end, const void* words, int64_t nbytes) {
  event_tracer_log_profiling_delegate(
      static_cast<Call*>(call)->tracer,
      name,
      name == nullptr ? static_cast<DelegateDebugIntId>(identifier) : kUnsetDelegateDebugIntId,
      start,
      end,
      words,
      static_cast<size_t>(nbytes));
}

// A line for ExecuTorch's log.
DK_EXPORT void dk_log(const char* text) {
  ET_LOG(Error, "%s", text);
}
