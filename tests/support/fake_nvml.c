/* A driver of NVIDIA's that is not there: NVML's functions, answered from the file that FAKE_NVML names.

   Lines "KEY VALUE": devices 1; then for device 0: 0.name, 0.busy, 0.used, 0.total, 0.power (mW), 0.clock, 0.reasons, ...
   A key that is missing is NOT_SUPPORTED, as boards answer for gauges that they lack. "0.process PID BYTES" may come
   often. The energy counter adds the power up by the clock, from look to look. "hang 1": no call comes back. The file is
   read at each call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };
typedef unsigned long long u64;
typedef struct { unsigned pid; u64 bytes; unsigned gpu, compute; } process;

static int ask(const char *key, u64 *value, char *text, size_t size, process *held, unsigned *count, unsigned room) {
    char line[256], name[64], rest[192];
    int found = NOT_SUPPORTED;
    FILE *file = fopen(getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "", "r");
    if (!file) return UNKNOWN;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63s %191[^\n]", name, rest) != 2) continue;
        if (!strcmp(name, "hang")) for (;;) sleep(1000);
        if (strcmp(name, key)) continue;
        found = SUCCESS;
        if (value) *value = strtoull(rest, 0, 10);
        if (text) snprintf(text, size, "%s", rest);
        if (count) {
            if (held && *count < room) {
                memset(&held[*count], 0, sizeof *held);
                sscanf(rest, "%u %llu", &held[*count].pid, &held[*count].bytes);
            }
            ++*count;
        }
    }
    fclose(file);
    return found;
}

static const char *key(void *device, const char *name) {
    static char made[80];
    snprintf(made, sizeof made, "%d.%s", (int)(long)device - 1, name);
    return made;
}

static int number(void *device, const char *name, unsigned *out) {
    u64 value = 0;
    int code = ask(key(device, name), &value, 0, 0, 0, 0, 0);
    *out = (unsigned)value;
    return code;
}

int nvmlInitWithFlags(unsigned flags) { u64 value; return ask("devices", &value, 0, 0, 0, 0, 0) ? UNKNOWN : SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Unknown Error"; }
int nvmlDeviceGetCount_v2(unsigned *out) { u64 v = 0; int c = ask("devices", &v, 0, 0, 0, 0, 0); *out = v; return c; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **out) {
    unsigned lost = 0;
    *out = (void *)(long)(i + 1);
    number(*out, "lost", &lost);
    return lost ? 15 : SUCCESS; /* NVML_ERROR_GPU_IS_LOST */
}
int nvmlDeviceGetName(void *d, char *out, unsigned size) { return ask(key(d, "name"), 0, out, size, 0, 0, 0); }
int nvmlDeviceGetPowerUsage(void *d, unsigned *out) { return number(d, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *out) { return number(d, "limit", out); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *d, unsigned *out) { return number(d, "default_limit", out); }
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *out) { return number(d, kind == 1 ? "clock" : "other_clock", out); }
int nvmlDeviceGetMaxClockInfo(void *d, int kind, unsigned *out) { return number(d, kind == 1 ? "most_clock" : "other_clock", out); }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out) { return number(d, "celsius", out); }
int nvmlDeviceGetPersistenceMode(void *d, unsigned *out) { return number(d, "persistent", out); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *out) { return number(d, "generation", out); }
int nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *out) { return number(d, "width", out); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *d, unsigned *out) { return number(d, "most_generation", out); }
int nvmlDeviceGetMaxPcieLinkWidth(void *d, unsigned *out) { return number(d, "most_width", out); }

int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, u64 *out) { return ask(key(d, "reasons"), out, 0, 0, 0, 0, 0); }
int nvmlDeviceGetTotalEccErrors(void *d, int type, int counter, u64 *out) { /* 1, 0: uncorrected, since it was loaded */
    return ask(key(d, type == 1 && counter == 0 ? "errors" : "other_errors"), out, 0, 0, 0, 0, 0);
}

int nvmlDeviceGetUtilizationRates(void *d, unsigned *out) { out[1] = 0; return number(d, "busy", out); }

int nvmlDeviceGetMemoryInfo(void *d, u64 *out) { /* total, free, used */
    int code = ask(key(d, "total"), &out[0], 0, 0, 0, 0, 0) | ask(key(d, "used"), &out[2], 0, 0, 0, 0, 0);
    out[1] = out[0] - out[2];
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(void *d, u64 *out) { /* version, total, reserved, free, used */
    return ask(key(d, "used_v2"), &out[4], 0, 0, 0, 0, 0) | ask(key(d, "total"), &out[1], 0, 0, 0, 0, 0);
}

int nvmlDeviceGetTotalEnergyConsumption(void *d, u64 *out) {
    static double spent[16], last[16]; /* in this process: the power of now since its last look */
    struct timespec now;
    u64 power = 0;
    int i = ((long)d - 1) & 15, code = ask(key(d, "power"), &power, 0, 0, 0, 0, 0);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = now.tv_sec + 1e-9 * now.tv_nsec;
    spent[i] += power * (seconds - last[i]);
    last[i] = seconds;
    *out = (u64)spent[i];
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, process *held) {
    unsigned room = *count;
    *count = 0;
    int code = ask(key(d, "process"), 0, 0, 0, held, count, room);
    if (code == NOT_SUPPORTED) return SUCCESS;
    return code ? code : *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}
/* GPM: a sample is the device; 0.sm and 0.tensor are percents. */
typedef struct { unsigned id; int code; double value; const char *names[3]; } metric;
typedef struct { unsigned version, count; void *before, *now; metric metrics[]; } metrics;

int nvmlGpmQueryDeviceSupport(void *d, unsigned *support) { return number(d, "sm", &support[1]) ? NOT_SUPPORTED : !(support[1] = 1); }
int nvmlGpmSampleAlloc(void **sample) { *sample = malloc(16); return SUCCESS; }
int nvmlGpmSampleGet(void *d, void *sample) { *(void **)sample = d; return SUCCESS; }
int nvmlGpmMetricsGet(metrics *asked) {
    for (unsigned i = 0; i < asked->count; ++i) {
        unsigned value = 0;
        metric *each = &asked->metrics[i];
        each->code = number(*(void **)asked->now, each->id == 2 ? "sm" : each->id == 5 ? "tensor" : "?", &value);
        each->value = value;
    }
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *count, process *held) { *count = 0; return SUCCESS; }
