// The runtime of sqlml: the C code around compiled kernels, for Python and for DuckDB.
//
// The library is a DuckDB extension that needs neither Python nor DuckDB to be linked. DuckDB hands
// its functions over when it loads the extension (`sqlml_init_c_api`). Python stores the addresses
// of its own functions in `sqlml_python` before it calls a kernel.
#define _GNU_SOURCE  // dladdr
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#define EXPORTED __declspec(dllexport)
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define EXPORTED __attribute__((visibility("default")))
#endif

typedef int64_t word;

// The digest of this file, by which Python recognises a library of other sources.
EXPORTED const char sqlml_sources[] = SOURCE_DIGEST;

// ---- DuckDB's functions ------------------------------------------------------------------------

// Compiled kernels and the code below call DuckDB through this table, which is a copy of the one that
// DuckDB passes to an extension for the stable version 1.2.0 of its C API.
#define API_FUNCTIONS 357
EXPORTED void *sqlml_duckdb_api[API_FUNCTIONS];

typedef struct {
	uint64_t lower;
	int64_t upper;
} hugeint;

typedef struct {
	uint8_t width, scale;
	hugeint value;
} decimal;

#define DUCKDB(index, result, ...) ((result(*)(__VA_ARGS__))sqlml_duckdb_api[index])
#define connect_to DUCKDB(3, int, void *, void **)
#define disconnect DUCKDB(6, void, void **)
#define hugeint_to_double DUCKDB(40, double, hugeint)
#define uhugeint_to_double DUCKDB(42, double, hugeint)
#define decimal_to_double DUCKDB(45, double, decimal)
#define create_logical_type DUCKDB(156, word, word)
#define create_list_type DUCKDB(159, word, word)
#define create_map_type DUCKDB(161, word, word, word)
#define create_struct_type DUCKDB(163, word, word *, word *, word)
#define create_decimal_type DUCKDB(165, word, uint8_t, uint8_t)
#define get_type_id DUCKDB(166, int, word)
#define get_decimal_width DUCKDB(167, uint8_t, word)
#define get_decimal_scale DUCKDB(168, uint8_t, word)
#define get_decimal_storage DUCKDB(169, int, word)
#define destroy_type DUCKDB(184, void, word *)
#define get_vector_type DUCKDB(193, word, word)
#define assign_text DUCKDB(198, void, word, word, const char *, word)
#define create_function DUCKDB(209, word, void)
#define destroy_function DUCKDB(210, void, word *)
#define set_function_name DUCKDB(211, void, word, const char *)
#define set_special_handling DUCKDB(213, void, word)
#define add_parameter DUCKDB(215, void, word, word)
#define set_return_type DUCKDB(216, void, word, word)
#define set_extra_info DUCKDB(217, void, word, void *, void *)
#define set_function_code DUCKDB(218, void, word, void (*)(word, word, word))
#define register_function DUCKDB(219, int, void *, word)
#define set_chunk_size DUCKDB(192, void, word, word)
#define create_table_function DUCKDB(242, word, void)
#define destroy_table_function DUCKDB(243, void, word *)
#define set_table_function_name DUCKDB(244, void, word, const char *)
#define set_table_extra_info DUCKDB(247, void, word, const void *, void *)
#define set_table_bind DUCKDB(248, void, word, void (*)(word))
#define set_table_init DUCKDB(249, void, word, void (*)(word))
#define set_table_code DUCKDB(251, void, word, void (*)(word, word))
#define register_table_function DUCKDB(253, int, void *, word)
#define add_result_column DUCKDB(255, void, word, const char *, word)
#define set_init_data DUCKDB(264, void, word, void *, void (*)(void *))
#define get_table_extra_info DUCKDB(269, const word *, word)
#define get_init_data DUCKDB(271, word *, word)

// Set by Python, since version 1.2.0 of the API lacks it; only calls by name use it.
EXPORTED word (*sqlml_get_bind_data)(word info);

#define CALL_1(name, index)                                                                        \
	EXPORTED word name(word a) { return ((word(*)(word))sqlml_duckdb_api[index])(a); }
#define CALL_2(name, index)                                                                        \
	EXPORTED word name(word a, word b) { return ((word(*)(word, word))sqlml_duckdb_api[index])(a, b); }

CALL_1(duckdb_data_chunk_get_column_count, 189)
CALL_2(duckdb_data_chunk_get_vector, 190)
CALL_1(duckdb_data_chunk_get_size, 191)
CALL_1(duckdb_vector_get_data, 194)
CALL_1(duckdb_vector_get_validity, 195)
CALL_1(duckdb_vector_ensure_validity_writable, 196)
CALL_1(duckdb_list_vector_get_child, 199)
CALL_2(duckdb_list_vector_set_size, 201)
CALL_2(duckdb_list_vector_reserve, 202)
CALL_2(duckdb_struct_vector_get_child, 203)
CALL_1(duckdb_array_vector_get_child, 204)
CALL_1(duckdb_scalar_function_get_extra_info, 220)
CALL_2(duckdb_scalar_function_set_error, 221)

EXPORTED word duckdb_scalar_function_get_bind_data(word info) {
	return sqlml_get_bind_data ? sqlml_get_bind_data(info) : 0;
}

// ---- Kernels that were compiled ahead ----------------------------------------------------------

// `compile_kernels.py` writes the tables. A library that is built from source alone has none.
#ifdef KERNEL_TABLES
#include KERNEL_TABLES

// The keys of the kernels, behind a mark by which Python finds them in the file of any platform.
static const struct {
	char mark[16];
	uint64_t count;
	unsigned char keys[KERNELS][16];
} kernel_list = {"sqlml's kernels\n", KERNELS, KERNEL_KEYS};
#endif

// Write the address of a kernel's entry, that of its entry for numbers or 0, and the kind of its
// result to `out`; return false if this library lacks the kernel.
EXPORTED _Bool sqlml_find_kernel(const unsigned char *key, const char *level, word *out) {
#ifdef KERNEL_TABLES
	for (int i = 0; i < LEVELS; i++)
		for (int k = 0; k < KERNELS && strcmp(level_names[i], level) == 0; k++)
			if (memcmp(kernel_list.keys[k], key, sizeof kernel_list.keys[k]) == 0) {
				out[0] = (word)kernel_entries[i][k];
				out[1] = (word)number_entries[i][k];
				out[2] = kernel_results[k];
				return 1;
			}
#endif
	(void)key, (void)level, (void)out;
	return 0;
}

#ifdef __x86_64__
// The features of levels in `processor_levels.py`, as bits in what the instruction CPUID returns.
enum {
	// Leaf 1, ECX: sse3, ssse3, fma, cx16, sse4.1, sse4.2, movbe, popcnt, xsave, avx, f16c, and that
	// a program can read which registers the system saves.
	LEAF_1 = 1 << 0 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 22 | 1 << 23 | 1 << 26 |
	         1 << 28 | 1 << 29 | 1 << 27,
	// Leaf 7, EBX: bmi, avx2, bmi2.
	LEAF_7 = 1 << 3 | 1 << 5 | 1 << 8,
	// Leaf 0x80000001, ECX: sahf, lzcnt.
	EXTENDED_LEAF = 1 << 0 | 1 << 5,
	// Leaf 7, EBX: avx512f, avx512dq, avx512cd, avx512bw. The last bit, avx512vl, is no int.
	AVX_512 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30,
	// Registers that the system saves.
	SAVES_AVX = 1 << 1 | 1 << 2,
	SAVES_AVX_512 = SAVES_AVX | 1 << 5 | 1 << 6 | 1 << 7,
};
#define AVX_512_VL (1u << 31)

static _Bool has_bits(unsigned value, unsigned bits) {
	return (value & bits) == bits;
}

// The compiler's own functions for this are missing or empty in some of its support libraries.
static const char *detect_level(void) {
	unsigned a, b, c, d, features, saved, unused;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bits(c, LEAF_1) ||
	    !__get_cpuid_count(7, 0, &a, &features, &c, &d) || !has_bits(features, LEAF_7) ||
	    !__get_cpuid(0x80000001, &a, &b, &c, &d) || !has_bits(c, EXTENDED_LEAF))
		return "x86-64";
	__asm__("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));
	if (!has_bits(saved, SAVES_AVX))
		return "x86-64";
#ifdef __APPLE__
	saved |= SAVES_AVX_512;  // macOS begins to save them when a thread first uses them.
#endif
	_Bool has_avx_512 = has_bits(features, AVX_512 | AVX_512_VL) && has_bits(saved, SAVES_AVX_512);
	return has_avx_512 ? "x86-64-v4" : "x86-64-v3";
}
#endif

// Return the name of the best level that the processor supports.
EXPORTED const char *sqlml_detect_level(void) {
#ifdef __x86_64__
	static const char *level;  // Virtual machines take long to answer.
	if (!level)
		level = detect_level();
	return level;
#else
	return "armv8-a";
#endif
}

#ifdef KERNEL_TABLES
// The row of the tables for the best level that the processor supports, or LEVELS.
static int find_level(void) {
	const char *best = sqlml_detect_level();
	int level = 0;
	while (level < LEVELS && strcmp(level_names[level], best) != 0)
		level++;
	return level;
}
#endif

// Return the address of the entry of a kernel, or that for numbers, or 0.
static void *get_kernel(word number, _Bool takes_numbers) {
#ifdef KERNEL_TABLES
	int level = find_level();
	if (number >= 0 && number < KERNELS && level < LEVELS)
		return takes_numbers ? number_entries[level][number] : kernel_entries[level][number];
#endif
	(void)number, (void)takes_numbers;
	return 0;
}

// ---- Calls from Python -------------------------------------------------------------------------

typedef struct object object;

// CPython's functions, in the order of `python_calls.FUNCTIONS`.
EXPORTED struct {
	void *(*save_thread)(void);
	void (*restore_thread)(void *);
	int (*ensure_gil)(void);
	void (*release_gil)(int);
	object *(*vectorcall)(object *, object *const *, size_t, object *);
	object *(*get_tuple_item)(object *, ptrdiff_t);
	ptrdiff_t (*get_tuple_size)(object *);
	int (*is_true)(object *);
	long long (*to_integer)(object *);
	object *(*from_integer)(long long);
	object *(*from_truth)(long);
	object *(*get_error)(void);
	void (*clear_error)(void);
	void (*set_error)(object *, const char *);
	object *(*set_no_memory)(void);
	int (*is_subtype)(object *, object *);
	void (*increase)(object *);
	void (*decrease)(object *);
	// Objects: numpy.ndarray, None, and TypeError.
	object *array_type, *none, *type_error;
} sqlml_python;

// Kinds of arguments in a signature. ITEMS is followed by the number of items, and the items. ARRAY
// is followed by the number of axes, the flags that the array must have, and a set of numpy's type
// numbers, with one bit for each.
enum { COUNT, FLAG, NOTHING, ITEMS, ARRAY };

// Kinds of results.
enum { NONE, TRUTH, INTEGER };

#define NO_MEMORY INT64_MIN
#define MAX_WORDS 512

// A kernel as Python knows it. `signature` has `arguments` kinds, one after the other.
typedef struct {
	word (*entry)(const word *);
	word result, arguments, signature[];
} python_kernel;

// Fields of numpy's arrays (`PyArrayObject_fields`) and of their dtypes (`PyArray_Descr`).
#define FIELD(type, address, offset) (*(type *)((char *)(address) + (offset)))
#define SWAPPED '>'

static int read_array(const word *kind, object *array, word *out) {
	word axes = kind[0], flags = kind[1], types = kind[2];
	object *type = FIELD(object *, array, 8);
	if (type != sqlml_python.array_type && !sqlml_python.is_subtype(type, sqlml_python.array_type))
		return 0;
	void *dtype = FIELD(void *, array, 56);
	if (FIELD(int, array, 24) != axes || (FIELD(int, array, 64) & flags) != flags ||
	    FIELD(char, dtype, 26) == SWAPPED || !(types >> (FIELD(int, dtype, 28) & 63) & 1))
		return 0;
	const word *lengths = FIELD(word *, array, 32), *strides = FIELD(word *, array, 40);
	*out++ = FIELD(word, array, 16);
	for (word i = 0; i < axes; i++) {
		out[i] = lengths[i];
		out[axes + i] = strides[i];
	}
	return 1;
}

// Write an argument as words to *out; return the kind that follows, or NULL if it does not fit.
static const word *read_argument(const word *kind, object *argument, word **out) {
	switch (*kind++) {
	case COUNT:
		*(*out)++ = sqlml_python.to_integer(argument);
		return (*out)[-1] == -1 && sqlml_python.get_error() ? 0 : kind;
	case FLAG:
		*(*out)++ = sqlml_python.is_true(argument);
		return (*out)[-1] < 0 ? 0 : kind;
	case NOTHING:
		return argument == sqlml_python.none ? kind : 0;
	case ITEMS: {
		word count = *kind++;
		if (sqlml_python.get_tuple_size(argument) != count)
			return 0;
		for (word i = 0; i < count && kind; i++)
			kind = read_argument(kind, sqlml_python.get_tuple_item(argument, i), out);
		return kind;
	}
	default:
		if (!read_array(kind, argument, *out))
			return 0;
		*out += 1 + 2 * kind[0];
		return kind + 3;
	}
}

// Where the content of a `bytes` object begins.
#define BYTES_CONTENT 32

// Call a kernel, in CPython's METH_FASTCALL form; `self` is a `bytes` object with a python_kernel.
EXPORTED object *sqlml_call_kernel(object *self, object *const *arguments, ptrdiff_t count) {
	const python_kernel *kernel = (const python_kernel *)((const char *)self + BYTES_CONTENT);
	word words[MAX_WORDS], *out = words;
	const word *kind = count == kernel->arguments ? kernel->signature : 0;
	for (ptrdiff_t i = 0; i < count && kind; i++)
		kind = read_argument(kind, arguments[i], &out);
	if (!kind) {
		sqlml_python.set_error(sqlml_python.type_error,
		                       "a kernel was called with arguments that it was not compiled for");
		return 0;
	}
	void *thread = sqlml_python.save_thread();
	word result = kernel->entry(words);
	sqlml_python.restore_thread(thread);
	if (result == NO_MEMORY)
		return sqlml_python.set_no_memory();
	if (kernel->result == INTEGER)
		return sqlml_python.from_integer(result);
	if (kernel->result == TRUTH)
		return sqlml_python.from_truth(result == 0);
	sqlml_python.increase(sqlml_python.none);
	return sqlml_python.none;
}

// ---- Calls of Python ---------------------------------------------------------------------------

static object *call_object(object *callable, object **arguments, size_t count) {
	object *result = sqlml_python.vectorcall(callable, arguments, count, 0);
	for (size_t i = 0; i < count; i++)
		sqlml_python.decrease(arguments[i]);
	return result;
}

// Call a Python function with four integers while holding the GIL; return 0 if it raises.
//
// A signal handler may raise at the first instruction of the function, before any `try`. Then
// `handler` is called with `info`, the address of DuckDB's call, and the class of the exception.
EXPORTED word sqlml_call_python(word function, word handler, word first, word info, word third,
                                word fourth) {
	if (!sqlml_python.ensure_gil)  // Without Python, `function` is one of this file.
		return ((word(*)(word, word, word, word))function)(first, info, third, fourth);
	int state = sqlml_python.ensure_gil();
	word numbers[] = {first, info, third, fourth}, reply = 0;
	object *arguments[4];
	for (int i = 0; i < 4; i++)
		arguments[i] = sqlml_python.from_integer(numbers[i]);
	object *result = call_object((object *)function, arguments, 4);
	if (result) {
		reply = sqlml_python.to_integer(result);
	} else {
		object *pair[] = {sqlml_python.from_integer(info), sqlml_python.get_error()};
		sqlml_python.increase(pair[1]);
		sqlml_python.clear_error();
		result = call_object((object *)handler, pair, 2);
		sqlml_python.clear_error();
	}
	if (result)
		sqlml_python.decrease(result);
	sqlml_python.release_gil(state);
	return reply;
}

// ---- Exported models: the data ------------------------------------------------------------------

// An exported model is a copy of this library, followed by data, a trailer, and DuckDB's footer of
// FOOTER bytes. The data is mapped read-only, so processes share it.

#define FOOTER 512
#define MAGIC "sqlml 1\n"
#define DAMAGED "the file is damaged: export the model again"
#define CHANGED                                                                                     \
	"the file has changed since this process loaded it: start a new process, or export to another name"

// The beginning of the data. Positions are bytes from the beginning, and all are multiples of 8.
typedef struct {
	char magic[8];
	uint64_t checksum;   // of everything after this number
	word size;           // of the data, with this header
	word words, word_count;
	word patches, patch_count;
	word texts, text_size;  // ends with a NUL byte
	word arrays, array_size;
	word functions;      // the index of the word where the list of functions begins
} header;

// A word that becomes an address when the data is loaded: of a byte of the arrays, or of a kernel.
typedef struct {
	word index, kind, value;
} patch;
enum { ARRAY_PATCH, KERNEL_PATCH, WORD_PATCH };

static struct {
	word *words;
	word word_count;
	const char *texts, *arrays;
	word text_size, array_size;
} data;

static uint64_t hash_words(const uint64_t *words, word count) {
	uint64_t hash = 0;
	for (word i = 0; i < count; i++) {
		uint64_t mixed = words[i] + (uint64_t)i * 0x9E3779B97F4A7C15u;
		mixed = (mixed ^ mixed >> 32) * 0xC2B2AE3D27D4EB4Fu;
		hash += mixed ^ mixed >> 29;
	}
	return hash;
}

static _Bool is_inside(word first, word size, word whole) {
	return first >= 0 && size >= 0 && first % 8 == 0 && first <= whole && size <= whole - first;
}

// Check the data at `bytes`, and copy the words with addresses in them. Return an error, or NULL.
static const char *read_data(const char *bytes, word size) {
	const header *head = (const header *)bytes;
	if (size < (word)sizeof *head || memcmp(head->magic, MAGIC, 8) != 0)
		return "the file is of another version of sqlml: export the model again";
	if (head->size != size || size % 8 != 0 ||
	    head->checksum != hash_words((const uint64_t *)bytes + 2, size / 8 - 2))
		return DAMAGED;
	if (head->word_count > size || head->patch_count > size ||
	    !is_inside(head->words, head->word_count * 8, size) ||
	    !is_inside(head->patches, head->patch_count * (word)sizeof(patch), size) ||
	    !is_inside(head->texts, head->text_size, size) || head->text_size < 1 ||
	    !is_inside(head->arrays, head->array_size, size) || head->functions < 0 ||
	    head->functions >= head->word_count ||
	    bytes[head->texts + head->text_size - 1] != 0)
		return DAMAGED;
	data.words = malloc((size_t)head->word_count * 8 + 8);
	if (!data.words)
		return "out of memory";
	data.word_count = head->word_count;
	data.texts = bytes + head->texts, data.text_size = head->text_size;
	data.arrays = bytes + head->arrays, data.array_size = head->array_size;
	memcpy(data.words, bytes + head->words, (size_t)head->word_count * 8);
	const patch *patches = (const patch *)(bytes + head->patches);
	for (word i = 0; i < head->patch_count; i++) {
		word value = patches[i].value, *target = data.words + patches[i].index;
		if (patches[i].index < 0 || patches[i].index >= data.word_count || value < 0)
			return DAMAGED;
		if (patches[i].kind == ARRAY_PATCH && value <= data.array_size)
			*target = (word)(data.arrays + value);
		else if (patches[i].kind == WORD_PATCH && value < data.word_count)
			*target = (word)(data.words + value);
		else if (patches[i].kind == KERNEL_PATCH && get_kernel(value, 0))
			*target = (word)get_kernel(value, 0);
		else
			return DAMAGED;
	}
	return 0;
}

// ---- Exported models: results -------------------------------------------------------------------

// The vectors of a result, as a tree. `next` is the next free position of a vector, since lists are
// filled row by row.
typedef struct vector {
	word handle;
	char *items;
	word next;
	struct vector *children;
} vector;

// A tree of vectors as words: PLAIN; LISTED, the number of items per row, and the item; FIELDS, the
// number of fields, and the fields. A MAP is a list of a struct of the key and the value.
enum { PLAIN, LISTED, FIELDS };

static const word *count_vectors(const word *shape, word *count) {
	word kind = *shape++, children = kind == PLAIN ? 0 : kind == LISTED ? 1 : *shape;
	shape += kind != PLAIN;
	*count += 1;
	for (word i = 0; i < children; i++)
		shape = count_vectors(shape, count);
	return shape;
}

// Reserve memory in a tree of vectors for `rows` rows; `place` is where children are placed.
static const word *open_vectors(const word *shape, word handle, word rows, vector *out,
                                vector **place) {
	word kind = *shape++, children = kind == PLAIN ? 0 : kind == LISTED ? 1 : *shape;
	out->handle = handle, out->next = 0, out->children = *place;
	*place += children;
	if (kind == LISTED) {
		duckdb_list_vector_reserve(handle, rows * *shape);
		duckdb_list_vector_set_size(handle, rows * *shape);
	}
	shape += kind != PLAIN;
	for (word i = 0; i < children; i++) {
		word child = kind == LISTED ? duckdb_list_vector_get_child(handle)
		                            : duckdb_struct_vector_get_child(handle, i);
		shape = open_vectors(shape, child, rows, out->children + i, place);
	}
	out->items = kind == FIELDS ? 0 : (char *)duckdb_vector_get_data(handle);
	return shape;
}

// A value as words: NUMBER and a column; COMPLEMENT and a column, for 1 minus its number; LABEL, a column, the number that stands for the first label,
// and a table of labels; ARRAY_OF, the number of items and the items; PAIRS, the number of pairs, a
// table of keys, and the values; RECORD, the number of fields, and the fields.
enum { NUMBER, LABEL, ARRAY_OF, PAIRS, RECORD, COMPLEMENT };

// A table of labels: how many there are, the bytes of each, and their address; or 0 bytes, and the
// address of the words with the texts' positions and sizes.
static void put_label(const word *table, word k, vector *out, word at) {
	word count = table[0], bytes = table[1];
	if (k < 0 || k >= count)
		return;
	if (bytes > 0) {
		memcpy(out->items + at * bytes, (const char *)table[2] + k * bytes, (size_t)bytes);
		return;
	}
	const word *texts = (const word *)table[2];
	assign_text(out->handle, at, data.texts + texts[2 * k], texts[2 * k + 1]);
}

static const word *put_value(const word *value, const double *row, vector *out, word at) {
	switch (*value++) {
	case NUMBER:
		((double *)out->items)[at] = row[value[0]];
		return value + 1;
	case COMPLEMENT:
		((double *)out->items)[at] = 1 - row[value[0]];
		return value + 1;
	case LABEL:
		put_label(value + 2, (word)row[value[0]] - value[1], out, at);
		return value + 5;
	case ARRAY_OF: {
		word count = *value++, first = out->children->next;
		((word *)out->items)[2 * at] = first, ((word *)out->items)[2 * at + 1] = count;
		out->children->next += count;
		for (word i = 0; i < count; i++)
			value = put_value(value, row, out->children, first + i);
		return value;
	}
	case PAIRS: {
		word count = *value++, first = out->children->next;
		const word *keys = value;
		((word *)out->items)[2 * at] = first, ((word *)out->items)[2 * at + 1] = count;
		out->children->next += count;
		value += 3;
		for (word i = 0; i < count; i++) {
			put_label(keys, i, out->children->children, first + i);
			value = put_value(value, row, out->children->children + 1, first + i);
		}
		return value;
	}
	default: {
		word count = *value++;
		for (word i = 0; i < count; i++)
			value = put_value(value, row, out->children + i, at);
		return value;
	}
	}
}

// ---- Exported models: scoring -------------------------------------------------------------------

// Words of a function's state, in the order of `memory_layout.py`.
enum { PLAN, INDEX = 3, BUILD_PLAN, SCORE, NO_MEMORY_TEXT = 8, ALL_BATCHES, STATE_WORDS = 12 };

// The word of a plan with the columns of its matrix.
#define MATRIX_WIDTH 2

// Words of an exported function: the text of the name; the plan; the arguments, how many
// there are, and how many of them the plan reads; the type, the shape and the value of the result; how
// many numbers the plan computes for a row, and whether these are of 32 bits; the checks, and how many
// there are.
enum {
	NAME, FUNCTION_PLAN, ARGUMENTS, ARGUMENT_COUNT, COLUMNS, TYPE, SHAPE, VALUE, WIDTH, IS_INTEGER, CHECKS,
	CHECK_COUNT, OTHER_MESSAGE, FUNCTION_WORDS
};

// Words of an argument: its kind, its position among the columns of the plan or -1, whether the result
// is NULL where the argument is, the text of the message about an argument of another type, and the
// known categories, sorted, and how many there are, or -1 if every value is known. Categories are
// numbers, or words with the position and the size of each text.
enum { ARGUMENT_KIND, POSITION, REFUSES_NULL, TYPE_MESSAGE, KNOWN, KNOWN_COUNT, ARGUMENT_WORDS };
enum { TAKES_NUMBER, TAKES_TEXT, TAKES_TIME, TAKES_ANYTHING };  // The model does not read the last.

// Words of a check: its kind, the column of the plan's matrix or the text that it looks at, the text's
// number of the message, for IS_UNKNOWN the text that the message quotes or -1, and for
// IS_UNKNOWN_NUMBER the known numbers, sorted, and how many there are.
enum { CHECK_KIND, CHECKED, MESSAGE, QUOTED, KNOWN_NUMBERS, KNOWN_NUMBER_COUNT, CHECK_WORDS };
enum { IS_MISSING, IS_INFINITE, IS_TOO_LARGE, IS_UNKNOWN, IS_MISSING_TEXT, IS_UNKNOWN_NUMBER };

typedef struct {
	word state[STATE_WORDS];
	const word *function;
} model;

// The most rows of a chunk, and the most vectors of a result.
#define MAX_ROWS 2048
#define MAX_VECTORS 512

static word batches;
static word (*score_columns)(word, word, word, word, word, word);

enum {
	TYPE_BOOLEAN = 1, TYPE_TINYINT, TYPE_SMALLINT, TYPE_INTEGER, TYPE_BIGINT, TYPE_UTINYINT, TYPE_USMALLINT, TYPE_UINTEGER, TYPE_UBIGINT, TYPE_FLOAT,
	TYPE_DOUBLE, TYPE_TIMESTAMP, TYPE_HUGEINT = 16, TYPE_VARCHAR, TYPE_DECIMAL = 19, TYPE_LIST = 24, TYPE_STRUCT, TYPE_MAP, TYPE_UHUGEINT = 32,
	TYPE_ANY = 34, TYPE_SQLNULL = 36
};

static double read_decimal(word type, const void *items, word row) {
	int storage = get_decimal_storage(type);
	decimal number = {get_decimal_width(type), get_decimal_scale(type), {0, 0}};
	if (storage == TYPE_HUGEINT) {
		number.value = ((const hugeint *)items)[row];
	} else {
		int64_t value = storage == TYPE_SMALLINT       ? ((const int16_t *)items)[row]
		                : storage == TYPE_INTEGER ? ((const int32_t *)items)[row]
		                                          : ((const int64_t *)items)[row];
		number.value.lower = (uint64_t)value, number.value.upper = value < 0 ? -1 : 0;
	}
	return decimal_to_double(number);
}

#define CONVERT(type)                                                                              \
	for (word r = 0; r < rows; r++)                                                                \
		out[r] = (double)((const type *)items)[r];                                                 \
	return 1

// Convert numbers of any type to doubles, as DuckDB's cast does; return false for another type.
static _Bool convert_numbers(word id, word type, const void *items, word rows, double *out) {
	switch (id) {
	case TYPE_BOOLEAN: CONVERT(uint8_t);
	case TYPE_TINYINT: CONVERT(int8_t);
	case TYPE_SMALLINT: CONVERT(int16_t);
	case TYPE_INTEGER: CONVERT(int32_t);
	case TYPE_BIGINT: case TYPE_TIMESTAMP: CONVERT(int64_t);
	case TYPE_UTINYINT: CONVERT(uint8_t);
	case TYPE_USMALLINT: CONVERT(uint16_t);
	case TYPE_UINTEGER: CONVERT(uint32_t);
	case TYPE_UBIGINT: CONVERT(uint64_t);
	case TYPE_FLOAT: CONVERT(float);
	case TYPE_HUGEINT: case TYPE_UHUGEINT:
		for (word r = 0; r < rows; r++)
			out[r] = id == TYPE_HUGEINT ? hugeint_to_double(((const hugeint *)items)[r])
			                       : uhugeint_to_double(((const hugeint *)items)[r]);
		return 1;
	case TYPE_DECIMAL:
		for (word r = 0; r < rows; r++)
			out[r] = read_decimal(type, items, r);
		return 1;
	default: return 0;
	}
}

static _Bool is_null(const uint64_t *mask, word row) {
	return mask && !(mask[row >> 6] >> (row & 63) & 1);
}

// A block of memory that is handed out piece by piece.
static void *take(char **memory, word bytes) {
	void *piece = *memory;
	*memory += (bytes + 63) & ~63;
	return piece;
}

// Read an argument into the places of a column: the address of its values, and that of its mask.
// Numbers that are not DOUBLE are converted into `converted`. Return false for another type.
static _Bool read_argument_vector(const word *argument, word vector, word rows, double *converted,
                                  word *items, word *mask) {
	static const uint64_t all_null[MAX_ROWS / 64];
	*items = duckdb_vector_get_data(vector), *mask = duckdb_vector_get_validity(vector);
	if (argument[ARGUMENT_KIND] == TAKES_TEXT)
		return 1;
	word type = get_vector_type(vector), id = get_type_id(type);
	_Bool is_number = 1;
	if (id == TYPE_SQLNULL)
		*items = (word)converted, *mask = (word)all_null;
	else if (id != TYPE_DOUBLE) {
		is_number = convert_numbers(id, type, (const void *)*items, rows, converted);
		*items = (word)converted;
	}
	destroy_type(&type);
	return is_number;
}

// A string of DuckDB: its length, and the address of its bytes.
static const char *read_string(const char *string, uint32_t *length) {
	memcpy(length, string, 4);
	return *length <= 12 || *length == UINT32_MAX ? string + 4 : *(const char *const *)(string + 8);
}

// Return whether a sorted list of numbers has `number`.
static _Bool has_number(const double *known, word count, double number) {
	word low = 0, high = count;
	while (low < high) {
		word middle = (low + high) / 2;
		if (known[middle] == number)
			return 1;
		if (known[middle] < number)
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}

// Return whether a sorted list of texts, each of which is a position and a size, has `string`.
static _Bool has_text(const word *known, word count, const char *string) {
	uint32_t length;
	const char *text = read_string(string, &length);
	word low = 0, high = count;
	while (low < high) {
		word middle = (low + high) / 2, size = known[2 * middle + 1];
		int order = memcmp(data.texts + known[2 * middle], text, (size_t)(size < length ? size : length));
		if (order == 0 && size == length)
			return 1;
		if (order < 0 || (order == 0 && size < length))
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}

// Write a mask to `bits` in which categories that are not known are NULL.
static void hide_unknown(const word *argument, word items, word mask, word rows, uint64_t *bits) {
	word count = argument[KNOWN_COUNT];
	memset(bits, 0, (size_t)(rows / 8 + 8));
	for (word r = 0; r < rows; r++) {
		_Bool is_known = !is_null((const uint64_t *)mask, r);
		if (is_known && argument[ARGUMENT_KIND] == TAKES_TEXT)
			is_known = has_text((const word *)argument[KNOWN], count, (const char *)items + 16 * r);
		else if (is_known)
			is_known = has_number((const double *)argument[KNOWN], count, ((const double *)items)[r]);
		bits[r >> 6] |= (uint64_t)is_known << (r & 63);
	}
}

// Copy the rows `kept` of a column to `copy`, and the bits of its mask to `bits`.
static void select_rows(word *items, word *mask, word bytes, const word *kept, word count, char *copy,
                        uint64_t *bits) {
	for (word r = 0; r < count; r++)
		memcpy(copy + r * bytes, (const char *)*items + kept[r] * bytes, (size_t)bytes);
	if (*mask) {
		memset(bits, 0, (size_t)(count / 8 + 8));
		for (word r = 0; r < count; r++)
			bits[r >> 6] |= (uint64_t)!is_null((const uint64_t *)*mask, kept[r]) << (r & 63);
		*mask = (word)bits;
	}
	*items = (word)copy;
}

static void set_error(word info, const char *message) {
	duckdb_scalar_function_set_error(info, (word)message);
}

static void put_null(vector *out, word row) {
	duckdb_vector_ensure_validity_writable(out->handle);
	((uint64_t *)duckdb_vector_get_validity(out->handle))[row >> 6] &= ~(1ull << (row & 63));
	if (out->items && out->children)
		((word *)out->items)[2 * row] = ((word *)out->items)[2 * row + 1] = 0;
}

// Score a chunk of rows with a model: DuckDB calls this for each vector of rows.
static void score_model(word info, word chunk, word out) {
	const model *self = (const model *)duckdb_scalar_function_get_extra_info(info);
	const word *function = self->function;
	const word *arguments = (const word *)function[ARGUMENTS];
	word rows = duckdb_data_chunk_get_size(chunk), columns = function[COLUMNS];
	if (rows > MAX_ROWS) {
		set_error(info, "this DuckDB was built with larger vectors than 2048 rows");
		return;
	}
	word argument_count = function[ARGUMENT_COUNT], width = function[WIDTH];
	// DuckDB throws a C++ exception where memory runs out, so vectors are opened before there is
	// memory to free.
	vector tree[MAX_VECTORS], *place = tree + 1;
	open_vectors((const word *)function[SHAPE], out, rows, tree, &place);
	word column_bytes = 24 * rows + rows / 4 + 512;
	char *memory = malloc((size_t)(argument_count * column_bytes + 16 * columns + 1024 +
	                               8 * rows * (width + 2)));
	if (!memory) {
		set_error(info, (const char *)self->state[NO_MEMORY_TEXT]);
		return;
	}
	char *free_memory = (char *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
	word *addresses = take(&free_memory, 16 * columns), *kept = take(&free_memory, 8 * rows);
	double *numbers = take(&free_memory, 8 * rows * width), *zeros = take(&free_memory, 8 * rows);
	// A model of texts has a column of numbers, too, which no argument fills.
	memset(zeros, 0, (size_t)(8 * rows));
	for (word i = 0; i < columns; i++)
		addresses[i] = (word)zeros, addresses[columns + i] = 0;
	uint64_t refused[MAX_ROWS / 64] = {0};
	word kept_count = 0;
	for (word i = 0; i < argument_count; i++) {
		const word *argument = arguments + i * ARGUMENT_WORDS;
		word items, mask, at = argument[POSITION];
		double *converted = take(&free_memory, 8 * rows);
		if (argument[ARGUMENT_KIND] == TAKES_ANYTHING)
			continue;
		if (!read_argument_vector(argument, duckdb_data_chunk_get_vector(chunk, i), rows, converted,
		                          &items, &mask)) {
			set_error(info, data.texts + argument[TYPE_MESSAGE]);
			goto done;
		}
		if (argument[KNOWN_COUNT] >= 0) {
			uint64_t *bits = take(&free_memory, rows / 8 + 8);
			hide_unknown(argument, items, mask, rows, bits);
			mask = (word)bits;
		}
		for (word r = 0; r < rows && argument[REFUSES_NULL]; r++) {
			double number = argument[ARGUMENT_KIND] == TAKES_TEXT ? 0 : ((double *)items)[r];
			_Bool is_missing = is_null((const uint64_t *)mask, r) || number != number;
			refused[r >> 6] |= (uint64_t)is_missing << (r & 63);
		}
		if (at >= 0)
			addresses[at] = items, addresses[columns + at] = mask;
	}
	for (word r = 0; r < rows; r++)
		if (!(refused[r >> 6] >> (r & 63) & 1))
			kept[kept_count++] = r;
	if (kept_count < rows)
		for (word i = 0; i < argument_count; i++) {
			const word *argument = arguments + i * ARGUMENT_WORDS;
			word at = argument[POSITION], bytes = argument[ARGUMENT_KIND] == TAKES_TEXT ? 16 : 8;
			char *copy = take(&free_memory, bytes * rows);
			uint64_t *bits = take(&free_memory, rows / 8 + 8);
			if (at >= 0)
				select_rows(addresses + at, addresses + columns + at, bytes, kept, kept_count, copy, bits);
		}
	if (kept_count == 0 || score_columns(info, (word)self->state, (word)addresses, columns, kept_count,
	                                     (word)numbers)) {
		for (word i = kept_count * width - 1; i >= 0 && function[IS_INTEGER]; i--)
			numbers[i] = ((const int32_t *)numbers)[i];
		for (word r = 0, k = 0; r < rows; r++)
			if (k < kept_count && kept[k] == r)
				put_value((const word *)function[VALUE], numbers + width * k++, tree, r);
			else
				put_null(tree, r);
	}
done:
	free(memory);
}

// The most characters of a quoted text, and bytes for them with escapes.
#define QUOTED_CHARACTERS 60
#define QUOTED_BYTES (4 * QUOTED_CHARACTERS + 16)

// Write a text to `out` as messages in Python quote it, or NULL; a long text is cut.
static void quote_text(const char *text, uint32_t length, char *out) {
	if (!text || length == UINT32_MAX) {
		strcpy(out, "NULL");
		return;
	}
	char quote = memchr(text, '\'', length) && !memchr(text, '"', length) ? '"' : '\'';
	char *place = out, *cut = 0;
	int count = 1;
	*place++ = quote;
	for (uint32_t i = 0; i < length && count < QUOTED_CHARACTERS; i++) {
		unsigned char byte = (unsigned char)text[i];
		char escape[8] = {(char)byte};
		if (byte == '\\' || byte == (unsigned char)quote)
			snprintf(escape, sizeof escape, "\\%c", byte);
		else if (byte < 32 || byte == 127)
			snprintf(escape, sizeof escape, byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : byte == '\r' ? "\\r" : "\\x%02x", byte);
		for (const char *c = escape; *c; c++) {
			if (((unsigned char)*c & 0xC0) != 0x80)  // Not within a character of several bytes.
				count++;
			if (count == QUOTED_CHARACTERS - 3 && !cut)
				cut = place;
			*place++ = *c;
		}
	}
	if (count < QUOTED_CHARACTERS)
		*place++ = quote, *place = 0;
	else
		snprintf(cut, 8, "...%c", quote);
}

// Write the shortest decimals that mean `number`.
static void format_number(double number, char *out) {
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(out, QUOTED_BYTES, "%.*g", digits, number);
		if (strtod(out, 0) == number)
			return;
	}
}

// Set the error of a block of rows that a kernel refused: the message of the first check that one of
// the rows does not pass. `block` has the addresses of the matrix, the rows, and of the texts.
static word refuse_rows(word self_at, word info, word block_at, word plan_at) {
	const model *self = (const model *)self_at;
	const word *function = self->function, *block = (const word *)block_at;
	const word *check = (const word *)function[CHECKS], *texts_at = (const word *)block[3];
	word rows = block[1], width = ((const word *)plan_at)[MATRIX_WIDTH];
	for (word i = 0; i < function[CHECK_COUNT]; i++, check += CHECK_WORDS)
		for (word r = 0; r < rows; r++) {
			double number = 0;
			const char *text = 0;
			uint32_t length = 0;
			if (check[CHECK_KIND] != IS_MISSING_TEXT)
				number = ((const double *)block[0])[r * width + check[CHECKED]];
			if (check[QUOTED] >= 0) {
				text = read_string((const char *)texts_at[check[QUOTED]] + 16 * r, &length);
			}
			_Bool fails = check[CHECK_KIND] == IS_MISSING    ? number != number
			              : check[CHECK_KIND] == IS_INFINITE  ? number == INFINITY || number == -INFINITY
			              : check[CHECK_KIND] == IS_TOO_LARGE  ? number > FLT_MAX || number < -FLT_MAX
			              : check[CHECK_KIND] == IS_UNKNOWN   ? number < 0
			              : check[CHECK_KIND] == IS_UNKNOWN_NUMBER
			                  ? !has_number((const double *)check[KNOWN_NUMBERS], check[KNOWN_NUMBER_COUNT], number)
			                                                : length == UINT32_MAX;
			if (fails) {
				char message[1024], value[QUOTED_BYTES];
				if (check[CHECK_KIND] == IS_UNKNOWN_NUMBER && number == number)
					format_number(number, value);
				else
					quote_text(text, length, value);
				snprintf(message, sizeof message, data.texts + check[MESSAGE], value);
				set_error(info, message);
				return 0;
			}
		}
	set_error(info, data.texts + function[OTHER_MESSAGE]);
	return 0;
}

static word refuse_plan(word self_at, word info, word rows, word unused) {
	(void)self_at, (void)rows, (void)unused;
	set_error(info, "this batch of rows needs another plan: export the model again");
	return 0;
}

// ---- Exported models: functions -----------------------------------------------------------------

// Create the type that `code` describes: a number of DuckDB's, for LIST and MAP followed by the types
// of the items, for STRUCT by the number of fields, and the name and type of each.
static const word *create_type(const word *code, word *out) {
	word id = *code++, parts[2];
	switch (id) {
	case TYPE_LIST:
		code = create_type(code, parts);
		*out = create_list_type(parts[0]);
		destroy_type(parts);
		return code;
	case TYPE_MAP:
		code = create_type(create_type(code, parts), parts + 1);
		*out = create_map_type(parts[0], parts[1]);
		destroy_type(parts), destroy_type(parts + 1);
		return code;
	case TYPE_STRUCT: {
		word count = *code++, names[count], types[count];
		for (word i = 0; i < count; i++) {
			names[i] = (word)(data.texts + *code++);
			code = create_type(code, types + i);
		}
		*out = create_struct_type(types, names, count);
		for (word i = 0; i < count; i++)
			destroy_type(types + i);
		return code;
	}
	case TYPE_DECIMAL: *out = create_decimal_type((uint8_t)code[0], (uint8_t)code[1]); return code + 2;
	default: *out = create_logical_type(id); return code;
	}
}

// Register an exported function on a connection; return false if DuckDB refuses it.
static _Bool register_model(void *connection, const word *function) {
	static const word types[] = {TYPE_ANY, TYPE_VARCHAR, TYPE_TIMESTAMP, TYPE_ANY};
	model *self = calloc(1, sizeof *self);
	if (!self)
		return 0;
	self->function = function;
	self->state[PLAN] = function[FUNCTION_PLAN];
	self->state[INDEX] = (word)self;
	self->state[BUILD_PLAN] = (word)refuse_plan;
	self->state[SCORE] = (word)refuse_rows;
	self->state[NO_MEMORY_TEXT] = (word) "out of memory while scoring a batch of rows";
	self->state[ALL_BATCHES] = (word)&batches;
	word handle = create_function(), type;
	set_function_name(handle, data.texts + function[NAME]);
	set_special_handling(handle);
	for (word i = 0; i < function[ARGUMENT_COUNT]; i++) {
		const word *argument = (const word *)function[ARGUMENTS] + i * ARGUMENT_WORDS;
		create_type(types + argument[ARGUMENT_KIND], &type);
		add_parameter(handle, type);
		destroy_type(&type);
	}
	create_type((const word *)function[TYPE], &type);
	set_return_type(handle, type);
	destroy_type(&type);
	set_extra_info(handle, self, 0);
	set_function_code(handle, score_model);
	int state = register_function(connection, handle);
	destroy_function(&handle);
	return state == 0;
}

// A table function of two columns, without arguments. `self` has the text of its name, the number of
// rows, and the address of the words with the position and size of each text.
enum { TABLE_NAME, TABLE_ROWS, TABLE_TEXTS, TABLE_WORDS };

static void bind_table(word info) {
	word type = create_logical_type(TYPE_VARCHAR);
	add_result_column(info, "name", type);
	add_result_column(info, "value", type);
	destroy_type(&type);
}

static void start_table(word info) {
	set_init_data(info, calloc(1, sizeof(word)), free);
}

static void fill_table(word info, word chunk) {
	const word *self = get_table_extra_info(info), *texts = (const word *)self[TABLE_TEXTS];
	word *next_row = get_init_data(info), count = 0;
	for (; next_row && *next_row < self[TABLE_ROWS] && count < MAX_ROWS; count++, ++*next_row)
		for (word column = 0; column < 2; column++) {
			const word *text = texts + 4 * *next_row + 2 * column;
			assign_text(duckdb_data_chunk_get_vector(chunk, column), count, data.texts + text[0], text[1]);
		}
	set_chunk_size(chunk, count);
}

static _Bool register_table(void *connection, const word *self) {
	word handle = create_table_function();
	set_table_function_name(handle, data.texts + self[TABLE_NAME]);
	set_table_extra_info(handle, self, 0);
	set_table_bind(handle, bind_table);
	set_table_init(handle, start_table);
	set_table_code(handle, fill_table);
	int state = register_table_function(connection, handle);
	destroy_table_function(&handle);
	return state == 0;
}

// ---- Exported models: the file ------------------------------------------------------------------

#ifdef _WIN32

// Map the file of this library read-only; return its bytes, or NULL.
static const char *map_own_file(word *size) {
	HMODULE module;
	wchar_t path[32768];
	LARGE_INTEGER length;
	if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS |
	                            GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
	                        (LPCWSTR)(void *)map_own_file, &module) ||
	    !GetModuleFileNameW(module, path, 32768))
		return 0;
	HANDLE file = CreateFileW(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, 0, OPEN_EXISTING, 0, 0);
	if (file == INVALID_HANDLE_VALUE)
		return 0;
	HANDLE mapping = GetFileSizeEx(file, &length) ? CreateFileMappingW(file, 0, PAGE_READONLY, 0, 0, 0) : 0;
	const char *bytes = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : 0;
	if (mapping)
		CloseHandle(mapping);
	CloseHandle(file);
	*size = length.QuadPart;
	return bytes;
}

static void unmap_file(const char *bytes, word size) {
	(void)size;
	UnmapViewOfFile(bytes);
}
#else
static const char *map_own_file(word *size) {
	Dl_info info;
	struct stat status;
	void *bytes = MAP_FAILED;
	int file = dladdr((void *)(uintptr_t)map_own_file, &info) ? open(info.dli_fname, O_RDONLY) : -1;
	if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
		*size = status.st_size;
		bytes = mmap(0, (size_t)*size, PROT_READ, MAP_PRIVATE, file, 0);
	}
	if (file >= 0)
		close(file);
	return bytes == MAP_FAILED ? 0 : bytes;
}

static void unmap_file(const char *bytes, word size) {
	munmap((void *)(uintptr_t)bytes, (size_t)size);
}
#endif

// The end of an exported file, before DuckDB's footer.
typedef struct {
	char magic[8];
	word size;
} trailer;

// Return whether the library has kernels that this processor can run.
static _Bool has_code(void) {
#ifdef KERNEL_TABLES
	return find_level() < LEVELS;
#else
	return 0;
#endif
}

// The words that list the functions of the models behind the library, or NULL, and the checksum of
// the data.
static const word *model_list;
static uint64_t loaded_checksum;

// Read the models behind the library, once per process; return an error, or NULL. The library itself
// has no models, and no trailer.
static const char *load_models(void) {
	word size = 0;
	const char *bytes = map_own_file(&size);
	if (!bytes)
		return "the file of the extension cannot be read";
	trailer end = {{0}, 0};
	if (size >= FOOTER + (word)sizeof end)
		memcpy(&end, bytes + size - FOOTER - sizeof end, sizeof end);
	word begin = size - FOOTER - (word)sizeof end - end.size;
	const char *error = 0;
	if (memcmp(end.magic, MAGIC, 8) != 0)
		error = model_list ? CHANGED : 0;
	else if (end.size < (word)sizeof(header) || begin < 0 || begin % 64 != 0)
		error = DAMAGED;
	else if (model_list)  // The system's loader returns a library that has been loaded under a path.
		error = ((const header *)(bytes + begin))->checksum == loaded_checksum ? 0 : CHANGED;
	else if (!has_code())
		error = "the file has no machine code for this processor: export the model with a wheel";
	else {
		const header *head = (const header *)(bytes + begin);
		error = read_data(bytes + begin, end.size);
		if (!error) {
			model_list = data.words + head->functions;
			loaded_checksum = head->checksum;
			score_columns = (word(*)(word, word, word, word, word, word))get_kernel(model_list[0], 1);
			return 0;  // The data stays mapped.
		}
		free(data.words);
		data.words = 0;
	}
	unmap_file(bytes, size);
	return error;
}

// Register the functions of the models on a connection; return an error, or NULL.
static const char *register_models(void *connection) {
	const word *list = model_list + 1;
	for (word count = *list++; count > 0; count--, list += FUNCTION_WORDS)
		if (!register_model(connection, list))
			return "DuckDB refuses a function of the model, perhaps because another has its name";
	for (word count = *list++; count > 0; count--, list += TABLE_WORDS)
		if (!register_table(connection, list))
			return "DuckDB refuses a function of the model, perhaps because another has its name";
	return 0;
}

// ---- DuckDB loads the library ------------------------------------------------------------------

typedef struct {
	void (*set_error)(void *info, const char *error);
	void **(*get_database)(void *info);
	void *const *(*get_api)(void *info, const char *version);
} extension_access;

// The connection that Python registers its functions on, opened because DuckDB frees the database's
// wrapper when the function below returns. A library with models closes its connection, which would
// keep the database open.
EXPORTED void *sqlml_connection;

EXPORTED _Bool sqlml_init_c_api(void *info, extension_access *access) {
	void *const *api = access->get_api(info, "v1.2.0");
	void **database = access->get_database(info);
	if (!api || !database)
		return 0;
	memcpy(sqlml_duckdb_api, api, sizeof sqlml_duckdb_api);
	const char *error = load_models();
	if (!error && connect_to(*database, &sqlml_connection) != 0)
		return 0;
	if (!error && model_list) {
		error = register_models(sqlml_connection);
		disconnect(&sqlml_connection);
	}
	if (error)
		access->set_error(info, error);
	return !error;
}

// The second name of that function, which `init_symbol.py` replaces by one after an exported file.
#define SECOND_NAME sqlml_reserved_________________________________________________________________________________________________________________________________________________________________________________________________________________________________________________init_c_api

EXPORTED _Bool SECOND_NAME(void *info, extension_access *access) {
	return sqlml_init_c_api(info, access);
}
