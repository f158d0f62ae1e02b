// A DuckDB extension for Linux that loads an exported model for macOS, for the tests.
//
// It does what macOS's loader does: it maps the segments of the Mach-O file, adds the address to the
// pointers that the file lists, binds the functions of the system to those of Linux, and finds the
// init function in the tree of exported names. Both systems call functions alike, but for functions
// with a variable number of arguments on ARM64. MACOS_EXTENSION is the path of the model's file.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *path;
static char *base;

static void fail(const char *what, const char *name) {
	fprintf(stderr, "macos_loader: %s: %s\n", what, name);
	exit(1);
}

// ---- Functions that differ between the systems --------------------------------------------------

static int find_library(const void *address, Dl_info *info) {
	memset(info, 0, sizeof *info);
	info->dli_fname = path;
	info->dli_fbase = base;
	return address >= (const void *)base;
}

// macOS's struct stat has the size of the file at byte 96.
static int read_status(int file, char *out) {
	struct stat status;
	int result = fstat(file, &status);
	memset(out, 0, 144);
	memcpy(out + 96, &status.st_size, 8);
	return result;
}

static void zero(void *start, size_t size) {
	memset(start, 0, size);
}

static void fill(char *out, const char *pattern, size_t size) {
	for (size_t i = 0; i < size; i++)
		out[i] = pattern[i % 16];
}

#ifdef __aarch64__
// macOS passes all variable arguments on the stack, as Linux does where registers are used up.
__attribute__((used)) int print_from_stack(char *out, size_t size, const char *format, void *stack) {
	va_list arguments;
	_Static_assert(sizeof(va_list) == 32, "the layout of the procedure call standard");
	memset(&arguments, 0, sizeof arguments);
	memcpy(&arguments, &stack, sizeof stack);
	return vsnprintf(out, size, format, arguments);
}

int print(char *out, size_t size, const char *format, ...);
__asm__("print: mov x3, sp\n\tb print_from_stack\n");
#else
#define print snprintf
#endif

static void *find_function(const char *name) {
	static const struct {
		const char *name;
		void *function;
	} own[] = {
	    {"_dladdr", find_library}, {"_fstat", read_status},          {"_fstat$INODE64", read_status},
	    {"_bzero", zero},          {"___bzero", zero},               {"_memset_pattern16", fill},
	    {"_snprintf", print},      {"__availability_version_check", fail}, {"dyld_stub_binder", fail},
	};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (strcmp(own[i].name, name) == 0)
			return own[i].function;
	void *function = dlsym(RTLD_DEFAULT, name + 1);
	if (!function)
		fail("no such function", name);
	return function;
}

// ---- The file -----------------------------------------------------------------------------------

static uint64_t read_number(const uint8_t **at) {
	uint64_t value = 0;
	for (int shift = 0;; shift += 7) {
		uint8_t byte = *(*at)++;
		value |= (uint64_t)(byte & 0x7F) << shift;
		if (!(byte & 0x80))
			return value;
	}
}

static int64_t read_signed(const uint8_t **at) {
	int64_t value = 0;
	for (int shift = 0;;) {
		uint8_t byte = *(*at)++;
		value |= (int64_t)(byte & 0x7F) << shift;
		shift += 7;
		if (!(byte & 0x80))
			return byte & 0x40 && shift < 64 ? value | (int64_t)(~0ull << shift) : value;
	}
}

static char *segments[16];

static void rebase(const uint8_t *at, size_t size) {
	const uint8_t *end = at + size;
	char *place = 0;
	while (at < end) {
		uint8_t code = *at & 0xF0, number = *at & 0x0F;
		uint64_t count = number, skip = 0;
		at++;
		switch (code) {
		case 0x00: return;
		case 0x10: continue;
		case 0x20: place = segments[number] + read_number(&at); continue;
		case 0x30: place += read_number(&at); continue;
		case 0x40: place += 8 * number; continue;
		case 0x50: break;
		case 0x60: count = read_number(&at); break;
		case 0x70: count = 1, skip = read_number(&at); break;
		case 0x80: count = read_number(&at), skip = read_number(&at); break;
		default: fail("unknown rebase code", path);
		}
		for (; count > 0; count--, place += 8 + skip)
			*(uint64_t *)place += (uint64_t)base;
	}
}

static void *find_export(const uint8_t *tree, const char *name);
static const uint8_t *exports;

static void bind(const uint8_t *at, size_t size, int is_lazy) {
	const uint8_t *end = at + size;
	const char *name = "";
	char *place = 0;
	int64_t addend = 0, is_own = 0;
	while (at < end) {
		uint8_t code = *at & 0xF0, number = *at & 0x0F;
		uint64_t count = 1, skip = 0;
		at++;
		switch (code) {
		case 0x00:
			if (!is_lazy)
				return;
			continue;
		case 0x10: is_own = number == 0; continue;
		case 0x20: is_own = read_number(&at) == 0; continue;
		case 0x30: is_own = number == 0; continue;
		case 0x40: name = (const char *)at, at += strlen(name) + 1; continue;
		case 0x50: continue;
		case 0x60: addend = read_signed(&at); continue;
		case 0x70: place = segments[number] + read_number(&at); continue;
		case 0x80: place += read_number(&at); continue;
		case 0x90: break;
		case 0xA0: skip = read_number(&at); break;
		case 0xB0: skip = 8 * number; break;
		case 0xC0: count = read_number(&at), skip = read_number(&at); break;
		default: fail("unknown bind code", path);
		}
		char *address = is_own ? find_export(exports, name) : find_function(name);
		for (; count > 0; count--, place += 8 + skip)
			*(char **)place = address + addend;
	}
}

// Follow the edges of the tree whose texts make up `name`, as macOS's loader does.
static void *find_export(const uint8_t *tree, const char *name) {
	const uint8_t *node = tree;
	for (;;) {
		uint64_t size = read_number(&node);
		if (*name == 0) {
			if (size == 0 || read_number(&node) != 0)
				return 0;
			return base + read_number(&node);
		}
		node += size;
		int children = *node++;
		const uint8_t *next = 0;
		for (; children > 0 && !next; children--) {
			size_t length = strlen((const char *)node);
			_Bool fits = strncmp((const char *)node, name, length) == 0;
			node += length + 1;
			uint64_t offset = read_number(&node);
			if (fits)
				next = tree + offset, name += length;
		}
		if (!next)
			return 0;
		node = next;
	}
}

typedef struct {
	uint32_t command, size;
	char name[16];
	uint64_t address, room, offset, file_size;
	uint32_t most, protection, sections, flags;
} segment;

static const uint32_t *load(const char *bytes) {
	const uint32_t *head = (const uint32_t *)bytes, *info = 0;
	uint64_t end = 0;
	if (head[0] != 0xFEEDFACF)
		fail("no Mach-O file", path);
	for (int pass = 0; pass < 3; pass++) {
		const char *command = bytes + 32;
		int number = 0;
		for (uint32_t i = 0; i < head[4]; i++, command += ((const uint32_t *)command)[1]) {
			const segment *s = (const segment *)command;
			if (s->command == 0x80000022)  // LC_DYLD_INFO_ONLY
				info = (const uint32_t *)command;
			else if (s->command == 0x80000034)  // LC_DYLD_CHAINED_FIXUPS
				fail("chained fixups are not read", path);
			if (s->command != 0x19)  // LC_SEGMENT_64
				continue;
			if (pass == 0) {
				end = s->address + s->room > end ? s->address + s->room : end;
			} else if (pass == 1) {
				segments[number++] = base + s->address;
				memcpy(base + s->address, bytes + s->offset, s->file_size);
			} else if (mprotect(base + s->address, s->room, (int)s->protection) != 0) {
				fail("mprotect", s->name);
			}
		}
		if (pass == 0)
			base = mmap(0, end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (pass == 1 && info) {
			exports = (const uint8_t *)bytes + info[10];
			rebase((const uint8_t *)bytes + info[2], info[3]);
			bind((const uint8_t *)bytes + info[4], info[5], 0);
			bind((const uint8_t *)bytes + info[8], info[9], 1);
		}
	}
	return info;
}

__attribute__((visibility("default"))) _Bool macos_loader_init_c_api(void *info, void *access) {
	static char *bytes;
	path = getenv("MACOS_EXTENSION");
	if (!path)
		fail("no file", "set MACOS_EXTENSION");
	int file = open(path, O_RDONLY);
	struct stat status;
	if (file < 0 || fstat(file, &status) != 0)
		fail("cannot open", path);
	bytes = mmap(0, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	close(file);
	load(bytes);
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	char symbol[512];
	snprintf(symbol, sizeof symbol, "_%.*s_init_c_api", (int)strcspn(name, "."), name);
	_Bool (*init)(void *, void *) = (_Bool(*)(void *, void *))find_export(exports, symbol);
	if (!init)
		fail("no such export", symbol);
	return init(info, access);
}
