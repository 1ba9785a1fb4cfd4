// The functions of the driver that are used, over shared files: an IPC handle is the name of one, passed by value as
// CUDA's is.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

struct Handle { char reserved[64]; };
struct Area { std::string name; size_t size; int opened; };
static std::map<uint64_t, Area> areas;
static int current = 0, counter = 0, freed = 0, closed = 0, dirty = 0;

static uint64_t map_file(const std::string& path, size_t size, bool create) {
    int fd = open(path.c_str(), O_RDWR | (create ? O_CREAT | O_TRUNC : 0), 0600);
    if (fd < 0) return 0;
    if (create && ftruncate(fd, size)) return 0;
    void* place = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return place == MAP_FAILED ? 0 : (uint64_t)place;
}
static std::string text(const Handle& handle, size_t* size) {
    char name[40];
    unsigned long bytes = 0;
    std::memcpy(name, handle.reserved + 8, 40);
    std::memcpy(&bytes, handle.reserved, 8);
    *size = bytes;
    return name;
}

extern "C" {
int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return ordinal ? 101 : 0; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceTotalMem_v2(size_t* size, int) { *size = 150754820096; return 0; }
int cuDeviceGetName(char* name, int length, int) { std::snprintf(name, length, "A device"); return 0; }
int cuDeviceGetUuid(char* uuid, int) { for (int i = 0; i < 16; ++i) uuid[i] = (char)(16 * i); return 0; }
int cuDeviceGetAttribute(int* value, int which, int) {
    *value = which;
    if (which == 75) *value = 9;
    if (which == 76) *value = 0;
    if (which == 38) *value = 62914560;
    if (which == 16) *value = 132;
    if (which == 13) *value = 1980000;
    return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int) { *context = (void*)0x1234; return 0; }
int cuCtxPushCurrent_v2(void* context) { if (context != (void*)0x1234) return 201; ++current; return 0; }
int cuCtxPopCurrent_v2(void** context) { *context = (void*)0x1234; --current; return 0; }
int cuCtxSynchronize() { return current ? 0 : 201; }
int cuMemAlloc_v2(uint64_t* address, size_t size) {
    if (!current) return 201;
    if (size > ((size_t)1 << 40)) return 2;
    char name[40] = {0};
    std::snprintf(name, sizeof name, "/dev/shm/stand-in-%d-%d", getpid(), counter++);
    *address = map_file(name, size, true);
    std::memset((void*)*address, 0x77, size);  // what somebody left there
    areas[*address] = {name, size, 0};
    return 0;
}
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t size) {
    if (!current) return 201;
    std::memset((void*)address, value, size);
    return 0;
}
int cuMemFree_v2(uint64_t address) {
    if (!current) return 201;
    if (!areas.count(address)) return 1;
    munmap((void*)address, areas[address].size);
    unlink(areas[address].name.c_str());
    areas.erase(address);
    ++freed;
    return 0;
}
int cuIpcGetMemHandle(Handle* handle, uint64_t address) {
    if (!current || !areas.count(address)) return current ? 1 : 201;
    std::memset(handle->reserved, 0, 64);
    unsigned long size = areas[address].size;
    std::memcpy(handle->reserved, &size, 8);
    std::memcpy(handle->reserved + 8, areas[address].name.c_str(), areas[address].name.size());
    return 0;
}
int cuIpcOpenMemHandle_v2(uint64_t* address, Handle handle, unsigned flags) {
    if (!current) return 201;
    if (flags != 1) return 1;
    size_t size;
    std::string name = text(handle, &size);
    *address = size ? map_file(name, size, false) : 0;
    if (!*address) return 400;
    areas[*address] = {name, size, 1};
    return 0;
}
int cuIpcCloseMemHandle(uint64_t address) {
    if (!current) return 201;
    if (!areas.count(address) || !areas[address].opened) return 1;
    munmap((void*)address, areas[address].size);
    areas.erase(address);
    ++closed;
    return 0;
}
int cuGetErrorName(int error, const char** name) {
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 400 ? "CUDA_ERROR_INVALID_HANDLE" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
int cuGetErrorString(int error, const char** text) {
    *text = error == 2 ? "out of memory" : "something else";
    return 0;
}
int stand_in(int which) { return which == 0 ? freed : which == 1 ? closed : which == 2 ? current : (int)areas.size(); }
}
