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
#define set_varargs DUCKDB(212, void, word, word)
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

// `kernel_tables.py` writes the tables. A library that is built from source alone has none.
#ifndef KERNEL_TABLES
#define SCORE_COLUMNS (-1)
#else
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

// Return the number of the kernel that 16 bytes identify, or -1.
static word find_kernel_number(const unsigned char *key) {
#ifdef KERNEL_TABLES
	for (word k = 0; k < KERNELS; k++)
		if (memcmp(kernel_list.keys[k], key, sizeof kernel_list.keys[k]) == 0)
			return k;
#endif
	(void)key;
	return -1;
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
	// Objects: numpy.ndarray, tuple, None, and TypeError.
	object *array_type, *tuple_type, *none, *type_error;
} sqlml_python;

// Kinds of arguments in a signature. ITEMS is followed by the number of items, and the items. ARRAY
// is followed by the number of axes, the flags that the array must have, and a set of numpy's type
// numbers, with one bit for each. BOUND is followed by a number of words and the words, which are
// passed before the next argument.
enum { COUNT, FLAG, NOTHING, ITEMS, ARRAY, BOUND };

// Kinds of results.
enum { NONE, TRUTH, INTEGER };

#define NO_MEMORY INT64_MIN
#define MAX_WORDS 512

// A kernel as Python knows it. `signature` has `arguments` kinds, one after the other.
typedef struct {
	word (*entry)(const word *);
	word result, arguments, signature[];
} python_kernel;

// Fields of objects, of numpy's arrays (`PyArrayObject_fields`), and of dtypes (`PyArray_Descr`).
#define FIELD(type, address, offset) (*(type *)((char *)(address) + (offset)))
#define SWAPPED '>'

static int is_a(object *value, object *wanted) {
	object *type = FIELD(object *, value, 8);
	return type == wanted || sqlml_python.is_subtype(type, wanted);
}

static int read_array(const word *kind, object *array, word *out) {
	word axes = kind[0], flags = kind[1], types = kind[2];
	if (!is_a(array, sqlml_python.array_type))
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
	if (*kind == BOUND) {
		word count = kind[1];
		memcpy(*out, kind + 2, count * sizeof(word));
		*out += count;
		kind += 2 + count;
	}
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
		if (!is_a(argument, sqlml_python.tuple_type) || FIELD(word, argument, 16) != count)
			return 0;
		object *const *items = &FIELD(object *, argument, 24);
		for (word i = 0; i < count && kind; i++)
			kind = read_argument(kind, items[i], out);
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

// Call a Python function with four integers while holding the GIL; return 0 if it raises. Without
// `handler`, `function` is the address of a C function.
//
// A signal handler may raise at the first instruction of the function, before any `try`. Then
// `handler` is called with `info`, the address of DuckDB's call, and the class of the exception.
EXPORTED word sqlml_call_python(word function, word handler, word first, word info, word third,
                                word fourth) {
	if (!handler)  // `function` is one of this file.
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
#define MAGIC "sqlml 2\n"
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
	word keys, key_count;   // of kernels, 16 bytes each
	word arrays, array_size;
	word functions;      // the index of the word where the list of functions begins
} header;

// A word that becomes an address when the data is loaded: of a byte of the arrays, of a kernel, or of
// another word. The value is a position in the arrays, the number of a key, or the index of a word.
typedef struct {
	word index, kind, value;
} patch;
enum { NO_PATCH, ARRAY_PATCH, KERNEL_PATCH, WORD_PATCH };

// The loaded data of a file. While it is checked, a word that becomes an address is still the value of
// its patch, and `kinds` has the kind of each word's patch.
typedef struct {
	word *words;
	unsigned char *kinds;
	word word_count, functions;
	const char *texts, *arrays;
	word text_size, array_size, key_count;
	const unsigned char *keys;
} model_data;

static uint64_t hash_words(const uint64_t *words, word count) {
	uint64_t hash = 0;
	for (word i = 0; i < count; i++) {
		uint64_t mixed = words[i] + (uint64_t)i * 0x9E3779B97F4A7C15u;
		mixed = (mixed ^ mixed >> 32) * 0xC2B2AE3D27D4EB4Fu;
		hash += mixed ^ mixed >> 29;
	}
	return hash;
}

// Return whether `count` items of `bytes` bytes lie inside `whole` bytes, from the byte `first` on.
static _Bool is_inside(word first, word count, word bytes, word whole) {
	return first >= 0 && count >= 0 && first % 8 == 0 && first <= whole && count <= (whole - first) / bytes;
}

static void free_data(model_data *data) {
	free(data->words), free(data->kinds);
	data->words = 0, data->kinds = 0;
}

// Read the data at `bytes` with the words as they are in the file. Return an error, or NULL.
static const char *read_data(const char *bytes, word size, model_data *data) {
	const header *head = (const header *)bytes;
	if (size < (word)sizeof *head || memcmp(head->magic, MAGIC, 8) != 0)
		return "the file is of another version of sqlml: export the model again";
	if (head->size != size || size % 8 != 0 ||
	    head->checksum != hash_words((const uint64_t *)bytes + 2, size / 8 - 2) ||
	    !is_inside(head->words, head->word_count, 8, size) ||
	    !is_inside(head->patches, head->patch_count, sizeof(patch), size) ||
	    !is_inside(head->texts, head->text_size, 1, size) || head->text_size < 1 ||
	    !is_inside(head->keys, head->key_count, 16, size) ||
	    !is_inside(head->arrays, head->array_size, 1, size) ||
	    bytes[head->texts + head->text_size - 1] != 0)
		return DAMAGED;
	*data = (model_data){
		malloc((size_t)head->word_count * 8 + 8), calloc((size_t)head->word_count + 1, 1),
		head->word_count, head->functions, bytes + head->texts, bytes + head->arrays,
		head->text_size, head->array_size, head->key_count,
		(const unsigned char *)bytes + head->keys,
	};
	if (!data->words || !data->kinds)
		return "out of memory";
	memcpy(data->words, bytes + head->words, (size_t)head->word_count * 8);
	const patch *patches = (const patch *)(bytes + head->patches);
	for (word i = 0; i < head->patch_count; i++) {
		word index = patches[i].index, kind = patches[i].kind, value = patches[i].value;
		word limit = kind == ARRAY_PATCH ? data->array_size + 1
		           : kind == KERNEL_PATCH ? data->key_count
		                                  : data->word_count + 1;
		if (index < 0 || index >= data->word_count || kind < ARRAY_PATCH || kind > WORD_PATCH ||
		    value < 0 || value >= limit)
			return DAMAGED;
		data->words[index] = patches[i].value;
		data->kinds[index] = (unsigned char)kind;
	}
	return 0;
}

// Turn the words of checked data into addresses.
static void relocate_words(model_data *data) {
	for (word i = 0; i < data->word_count; i++) {
		word value = data->words[i];
		if (data->kinds[i] == ARRAY_PATCH)
			data->words[i] = (word)(data->arrays + value);
		else if (data->kinds[i] == WORD_PATCH)
			data->words[i] = (word)(data->words + value);
		else if (data->kinds[i] == KERNEL_PATCH)
			data->words[i] = (word)get_kernel(find_kernel_number(data->keys + 16 * value), 0);
	}
	free(data->kinds);
	data->kinds = 0;
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

// Reserve memory in a tree of vectors for `rows` rows; `place` is where children are placed.
static const word *open_vectors(const word *shape, word handle, word rows, vector *out,
                                vector **place) {
	word kind = *shape++, children = kind == PLAIN ? 0 : kind == LISTED ? 1 : *shape;
	out->handle = handle, out->next = 0, out->children = children > 0 ? *place : 0;
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

// Give the lists of a tree of vectors the sizes that they were filled to.
static const word *close_vectors(const word *shape, const vector *out) {
	word kind = *shape++, children = kind == PLAIN ? 0 : kind == LISTED ? 1 : *shape;
	shape += kind != PLAIN;
	if (kind == LISTED)
		duckdb_list_vector_set_size(out->handle, out->children->next);
	for (word i = 0; i < children; i++)
		shape = close_vectors(shape, out->children + i);
	return shape;
}

// A value as words: NUMBER and a column; COMPLEMENT and a column, for 1 minus its number; LABEL, a
// column, the number that stands for the first label, and a table of labels; ARRAY_OF, the number of
// items and the items; PAIRS, the number of pairs, a table of keys, and the values; RECORD, the number
// of fields, and the fields; MEMBERS, the number of columns, and a table of labels, for a list of the
// labels whose columns are positive.
enum { NUMBER, LABEL, ARRAY_OF, PAIRS, RECORD, COMPLEMENT, MEMBERS };

// Write NULL to the position `row` of a vector; the fields of a STRUCT become NULL, too.
static void put_null(vector *out, word fields, word row) {
	duckdb_vector_ensure_validity_writable(out->handle);
	((uint64_t *)duckdb_vector_get_validity(out->handle))[row >> 6] &= ~(1ull << (row & 63));
	if (out->items && out->children)  // A list.
		((word *)out->items)[2 * row] = ((word *)out->items)[2 * row + 1] = 0;
	for (word i = 0; i < fields; i++)
		put_null(out->children + i, 0, row);
}

// A table of labels: how many there are, the bytes of each, and their address; or 0 bytes, and the
// address of the words with the texts' positions and sizes. A number that is no label's gives NULL.
static void put_label(const char *texts, const word *table, double number, vector *out, word at) {
	if (!(number >= 0 && number < (double)table[0])) {
		put_null(out, 0, at);
		return;
	}
	word k = (word)number, bytes = table[1];
	if (bytes > 0) {
		memcpy(out->items + at * bytes, (const char *)table[2] + k * bytes, (size_t)bytes);
		return;
	}
	const word *places = (const word *)table[2];
	assign_text(out->handle, at, texts + places[2 * k], places[2 * k + 1]);
}

// Write a value of `row` to the position `at` of a vector; return the words after the value's.
static const word *put_value(const char *texts, const word *value, const double *row, vector *out, word at) {
	switch (*value++) {
	case NUMBER:
		((double *)out->items)[at] = row[value[0]];
		return value + 1;
	case COMPLEMENT:
		((double *)out->items)[at] = 1 - row[value[0]];
		return value + 1;
	case LABEL:
		put_label(texts, value + 2, row[value[0]] - (double)value[1], out, at);
		return value + 5;
	case ARRAY_OF: {
		word count = *value++, first = out->children->next;
		((word *)out->items)[2 * at] = first, ((word *)out->items)[2 * at + 1] = count;
		out->children->next += count;
		for (word i = 0; i < count; i++)
			value = put_value(texts, value, row, out->children, first + i);
		return value;
	}
	case PAIRS: {
		word count = *value++, first = out->children->next;
		const word *keys = value;
		((word *)out->items)[2 * at] = first, ((word *)out->items)[2 * at + 1] = count;
		out->children->next += count;
		value += 3;
		for (word i = 0; i < count; i++) {
			put_label(texts, keys, (double)i, out->children->children, first + i);
			value = put_value(texts, value, row, out->children->children + 1, first + i);
		}
		return value;
	}
	case MEMBERS: {
		word count = *value++, first = out->children->next, next = first;
		for (word i = 0; i < count; i++)
			if (row[i] > 0)
				put_label(texts, value, (double)i, out->children, next++);
		((word *)out->items)[2 * at] = first, ((word *)out->items)[2 * at + 1] = next - first;
		out->children->next = next;
		return value + 3;
	}
	default: {
		word count = *value++;
		for (word i = 0; i < count; i++)
			value = put_value(texts, value, row, out->children + i, at);
		return value;
	}
	}
}

// ---- Exported models: scoring -------------------------------------------------------------------

// Words of a function's state, in the order of `memory_layout.py`.
enum { PLAN, INDEX = 3, BUILD_PLAN, SCORE, NO_MEMORY_TEXT = 8, ALL_BATCHES, STATE_WORDS = 12 };

// Words of a plan, in the order of `memory_layout.py`. Lists of the columns and of the buffers follow.
enum {
	NUMBER_COLUMNS, TEXT_COLUMNS, MATRIX_WIDTH, NUMBER_BYTES, BLOCK_ROWS, SMALL_TABLE = 6, LARGE_TABLE = 8,
	MAX_CALL_WORDS = 10, BUFFERS, RESULT_WIDTH, RESULT_BYTES, LIST_LEVELS, PLAN_HEAD = 16
};
#define FLAT (-2)       // A value of LIST_LEVELS: the results are numbers.
#define NOT_BUILT (-1)  // A number of calls, if the plan lacks those for a batch.

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

// Words of a table function: the text of the name, the number of rows, and the positions and sizes of
// two texts per row.
enum { TABLE_NAME, TABLE_ROWS, TABLE_TEXTS, TABLE_WORDS };

typedef struct {
	word state[STATE_WORDS];
	const word *function;
	const model_data *data;
} model;

// The most rows of a chunk, the most vectors of a result, and the most fields of a STRUCT.
#define MAX_ROWS 2048
#define MAX_VECTORS 512
#define MAX_FIELDS 256

static word batches;

// The kernel that writes the numbers of rows to memory, and returns 0 if it has set an error.
static word (*score_columns)(word, word, word, word, word, word);

enum {
	TYPE_BOOLEAN = 1, TYPE_TINYINT, TYPE_SMALLINT, TYPE_INTEGER, TYPE_BIGINT, TYPE_UTINYINT, TYPE_USMALLINT, TYPE_UINTEGER, TYPE_UBIGINT, TYPE_FLOAT,
	TYPE_DOUBLE, TYPE_TIMESTAMP, TYPE_HUGEINT = 16, TYPE_VARCHAR, TYPE_BLOB, TYPE_DECIMAL, TYPE_LIST = 24, TYPE_STRUCT, TYPE_MAP, TYPE_UHUGEINT = 32,
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

// Convert numbers of any type to doubles, as DuckDB's cast does; return false for another type. An
// infinite timestamp becomes NaN, since DuckDB's epoch_us returns NULL for it.
static _Bool convert_numbers(word id, word type, const void *items, word rows, double *out) {
	switch (id) {
	case TYPE_BOOLEAN: CONVERT(uint8_t);
	case TYPE_TINYINT: CONVERT(int8_t);
	case TYPE_SMALLINT: CONVERT(int16_t);
	case TYPE_INTEGER: CONVERT(int32_t);
	case TYPE_BIGINT: CONVERT(int64_t);
	case TYPE_TIMESTAMP:
		for (word r = 0; r < rows; r++) {
			int64_t time = ((const int64_t *)items)[r];
			out[r] = time == INT64_MAX || time == -INT64_MAX ? NAN : (double)time;
		}
		return 1;
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
// Numbers that are not DOUBLE are converted into `converted`, which has 16 bytes per row. Return false
// for another type.
static _Bool read_argument_vector(const word *argument, word vector, word rows, double *converted,
                                  word *items, word *mask) {
	static const uint64_t all_null[MAX_ROWS / 64];
	*items = duckdb_vector_get_data(vector), *mask = duckdb_vector_get_validity(vector);
	word type = get_vector_type(vector), id = get_type_id(type);
	_Bool fits = 1;
	if (id == TYPE_SQLNULL) {
		memset(converted, 0, (size_t)(16 * rows));
		*items = (word)converted, *mask = (word)all_null;
	} else if (argument[ARGUMENT_KIND] == TAKES_TEXT) {
		fits = id == TYPE_VARCHAR;
	} else if (id != TYPE_DOUBLE) {
		fits = convert_numbers(id, type, (const void *)*items, rows, converted);
		*items = (word)converted;
	}
	destroy_type(&type);
	return fits;
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
static _Bool has_text(const char *texts, const word *known, word count, const char *string) {
	uint32_t length;
	const char *text = read_string(string, &length);
	word low = 0, high = count;
	while (low < high) {
		word middle = (low + high) / 2, size = known[2 * middle + 1];
		int order = memcmp(texts + known[2 * middle], text, (size_t)(size < length ? size : length));
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
static void hide_unknown(const char *texts, const word *argument, word items, word mask, word rows, uint64_t *bits) {
	word count = argument[KNOWN_COUNT];
	memset(bits, 0, (size_t)(rows / 8 + 8));
	for (word r = 0; r < rows; r++) {
		_Bool is_known = !is_null((const uint64_t *)mask, r);
		if (is_known && argument[ARGUMENT_KIND] == TAKES_TEXT)
			is_known = has_text(texts, (const word *)argument[KNOWN], count, (const char *)items + 16 * r);
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

// Score a chunk of rows with a model, whose arguments begin at the column `first` of the chunk.
static void score_chunk(const model *self, word info, word chunk, word first, word out) {
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
	const word *shape = (const word *)function[SHAPE];
	open_vectors(shape, out, rows, tree, &place);
	word fields = shape[0] == FIELDS ? shape[1] : 0;
	word column_bytes = 32 * rows + rows / 4 + 512;
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
		double *converted = take(&free_memory, 16 * rows);
		if (argument[ARGUMENT_KIND] == TAKES_ANYTHING)
			continue;
		if (!read_argument_vector(argument, duckdb_data_chunk_get_vector(chunk, first + i), rows, converted,
		                          &items, &mask)) {
			set_error(info, self->data->texts + argument[TYPE_MESSAGE]);
			goto done;
		}
		if (argument[KNOWN_COUNT] >= 0) {
			uint64_t *bits = take(&free_memory, rows / 8 + 8);
			hide_unknown(self->data->texts, argument, items, mask, rows, bits);
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
				put_value(self->data->texts, (const word *)function[VALUE], numbers + width * k++, tree, r);
			else
				put_null(tree, fields, r);
		close_vectors(shape, tree);
	}
done:
	free(memory);
}

// DuckDB calls this for each vector of rows of an exported function.
static void score_model(word info, word chunk, word out) {
	score_chunk((const model *)duckdb_scalar_function_get_extra_info(info), info, chunk, 0, out);
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

// Write a message with `value` in place of %s, and % in place of %%.
static void write_message(const char *text, const char *value, char *out, size_t size) {
	char *end = out + size - 1;
	for (; *text && out < end; text++) {
		const char *piece = text;
		size_t length = 1;
		if (text[0] == '%' && (text[1] == 's' || text[1] == '%')) {
			piece = *++text == 's' ? value : text;
			length = *text == 's' ? strlen(value) : 1;
		}
		if (length > (size_t)(end - out))
			length = (size_t)(end - out);
		memcpy(out, piece, length);
		out += length;
	}
	*out = 0;
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
				write_message(self->data->texts + check[MESSAGE], value, message, sizeof message);
				set_error(info, message);
				return 0;
			}
		}
	set_error(info, self->data->texts + function[OTHER_MESSAGE]);
	return 0;
}

static word refuse_plan(word self_at, word info, word rows, word unused) {
	(void)self_at, (void)rows, (void)unused;
	set_error(info, "this batch of rows needs another plan: export the model again");
	return 0;
}

// ---- Exported models: checks --------------------------------------------------------------------

// A stranger may have written the data, so everything in it is checked before it is used: each index
// and size here, and the contents of arrays by the argument checks of the kernels that read them.

// The bytes that kernels may read behind the end of an array.
#define PADDING 64

// Limits of what is sensible, so that no product of sizes overflows.
#define MAX_COLUMNS (1 << 20)
#define MAX_ARGUMENTS (1 << 14)
#define MAX_BUFFERS 4096
#define MAX_ROW_BYTES (1 << 30)
#define MAX_DEPTH 8

static word get_kind(const model_data *data, const word *at) { return data->kinds[at - data->words]; }

// Return `count` words from the index `first` on, or NULL if the data has no such words.
static const word *find_words(const model_data *data, word first, word count) {
	_Bool exist = first >= 0 && count >= 0 && first <= data->word_count && count <= data->word_count - first;
	return exist ? data->words + first : 0;
}

// Return the `count` words whose address the word at `at` becomes, or NULL.
static const word *follow_word(const model_data *data, const word *at, word count) {
	return get_kind(data, at) == WORD_PATCH ? find_words(data, *at, count) : 0;
}

// Return whether none of the words becomes an address.
static _Bool are_numbers(const model_data *data, const word *words, word count) {
	for (word i = 0; i < count; i++)
		if (get_kind(data, words + i) != NO_PATCH)
			return 0;
	return 1;
}

// Return the array whose address the word at `at` becomes, or NULL if it has fewer items.
static const char *find_array(const model_data *data, const word *at, word count, word bytes) {
	if (get_kind(data, at) != ARRAY_PATCH || *at < 0 || count < 0 || *at > data->array_size - PADDING ||
	    count > (data->array_size - PADDING - *at) / bytes)
		return 0;
	return data->arrays + *at;
}

// Return whether a message begins at a position of the texts, which end with a NUL byte.
static _Bool is_message(const model_data *data, word at) { return at >= 0 && at < data->text_size; }

// Return whether a text is UTF-8, as DuckDB expects.
static _Bool is_utf8(const unsigned char *text, word size) {
	for (word i = 0; i < size;) {
		unsigned char first = text[i++];
		word more = first < 0x80 ? 0 : first < 0xC2 ? -1 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : first < 0xF5 ? 3 : -1;
		if (more < 0 || more > size - i)
			return 0;
		unsigned char second = more > 0 ? text[i] : 0x80;
		if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
		    (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
			return 0;
		for (; more > 0; more--)
			if ((text[i++] & 0xC0) != 0x80)
				return 0;
	}
	return 1;
}

static _Bool is_name(const model_data *data, word at) {
	return is_message(data, at) && is_utf8((const unsigned char *)data->texts + at, (word)strlen(data->texts + at));
}

// Return whether words are the positions and sizes of `count` texts; these are UTF-8 if DuckDB gets them.
static _Bool are_texts(const model_data *data, const word *places, word count, _Bool are_results) {
	if (!places || !are_numbers(data, places, 2 * count))
		return 0;
	for (word i = 0; i < count; i++, places += 2)
		if (places[0] < 0 || places[1] < 0 || places[0] > data->text_size || places[1] > data->text_size - places[0] ||
		    (are_results && !is_utf8((const unsigned char *)data->texts + places[0], places[1])))
			return 0;
	return 1;
}

// A vector of a result: its kind and DuckDB's number of its type; for a list, the items per row of the
// result for which there is room, and those that the value fills; for FIELDS, the number of fields. The
// children follow the vector, and `end` is the index after the last of them.
typedef struct {
	word kind, type, size, used, end;
} vector_check;

typedef struct {
	const model_data *data;
	const word *type, *shape, *value, *end;
	word width, vector_count;
	vector_check vectors[MAX_VECTORS];
} result_check;

// Return the next words of a description, or NULL if there are not as many numbers.
static const word *read_words(result_check *self, const word **place, word count) {
	const word *words = *place;
	if (count > self->end - words || !are_numbers(self->data, words, count))
		return 0;
	*place += count;
	return words;
}

static _Bool check_vector(result_check *self, word depth);

static _Bool check_vectors(result_check *self, word count, word depth) {
	for (word i = 0; i < count; i++)
		if (!check_vector(self, depth + 1))
			return 0;
	return 1;
}

// Read the next type and the next shape; return whether both are valid and fit each other.
static _Bool check_vector(result_check *self, word depth) {
	const word *type = read_words(self, &self->type, 1), *shape = read_words(self, &self->shape, 1);
	if (!type || !shape || depth > MAX_DEPTH || self->vector_count + 2 > MAX_VECTORS)
		return 0;
	vector_check *vector = self->vectors + self->vector_count++;
	*vector = (vector_check){shape[0], type[0], 0, 0, 0};
	_Bool is_valid = 0;
	if (type[0] == TYPE_LIST || type[0] == TYPE_MAP) {
		const word *size = read_words(self, &self->shape, 1);
		if (shape[0] != LISTED || !size || size[0] < 0 || size[0] > MAX_COLUMNS)
			return 0;
		vector->size = size[0];
		if (type[0] == TYPE_LIST) {
			is_valid = check_vector(self, depth + 1);
		} else {
			const word *pair = read_words(self, &self->shape, 2);
			if (!pair || pair[0] != FIELDS || pair[1] != 2)
				return 0;
			vector_check *fields = self->vectors + self->vector_count++;
			*fields = (vector_check){FIELDS, TYPE_STRUCT, 2, 0, 0};
			is_valid = check_vectors(self, 2, depth);
			fields->end = self->vector_count;
		}
	} else if (type[0] == TYPE_STRUCT) {
		const word *count = read_words(self, &self->type, 1), *fields = read_words(self, &self->shape, 1);
		if (shape[0] != FIELDS || !count || !fields || count[0] < 1 || count[0] > MAX_FIELDS || fields[0] != count[0])
			return 0;
		vector->size = count[0];
		is_valid = 1;
		for (word i = 0; i < count[0] && is_valid; i++) {
			const word *name = read_words(self, &self->type, 1);
			is_valid = name && is_name(self->data, name[0]) && check_vector(self, depth + 1);
		}
	} else {
		is_valid = shape[0] == PLAIN && (type[0] == TYPE_VARCHAR || (type[0] >= TYPE_BOOLEAN && type[0] <= TYPE_DOUBLE));
	}
	vector->end = self->vector_count;
	return is_valid;
}

// Return whether the three words at the next value are a table of labels of a vector's type.
static _Bool check_labels(result_check *self, const vector_check *vector, word *count) {
	static const word sizes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8};
	const word *table = read_words(self, &self->value, 2), *address = self->value;
	if (!table || self->end - address < 1 || vector->kind != PLAIN || table[0] < 0)
		return 0;
	self->value++;
	*count = table[0];
	if (vector->type == TYPE_VARCHAR)
		return table[1] == 0 && table[0] <= self->data->word_count &&
		       are_texts(self->data, follow_word(self->data, address, 2 * table[0]), table[0], 1);
	const char *items = find_array(self->data, address, table[0], sizes[vector->type]);
	if (!items || table[1] != sizes[vector->type])
		return 0;
	for (word i = 0; i < table[0] && vector->type == TYPE_BOOLEAN; i++)
		if (items[i] & ~1)
			return 0;
	return 1;
}

// Read the next value; return whether it is valid for the vector at an index.
static _Bool check_value(result_check *self, word index) {
	vector_check *vector = self->vectors + index;
	const word *kind = read_words(self, &self->value, 1), *number;
	word count;
	if (!kind)
		return 0;
	switch (kind[0]) {
	case NUMBER: case COMPLEMENT: case LABEL:
		number = read_words(self, &self->value, kind[0] == LABEL ? 2 : 1);
		if (!number || number[0] < 0 || number[0] >= self->width)
			return 0;
		return kind[0] == LABEL ? check_labels(self, vector, &count) : vector->kind == PLAIN && vector->type == TYPE_DOUBLE;
	case ARRAY_OF: case PAIRS:
		number = read_words(self, &self->value, 1);
		if (!number || vector->type != (kind[0] == PAIRS ? TYPE_MAP : TYPE_LIST) || number[0] < 0 ||
		    number[0] > vector->size - vector->used)
			return 0;
		vector->used += number[0];
		word child = index + 1;
		if (kind[0] == PAIRS) {
			if (!check_labels(self, self->vectors + index + 2, &count) || count < number[0])
				return 0;
			child = self->vectors[index + 2].end;
		}
		for (word i = 0; i < number[0]; i++)
			if (!check_value(self, child))
				return 0;
		return 1;
	case MEMBERS:
		number = read_words(self, &self->value, 1);
		if (!number || vector->type != TYPE_LIST || number[0] < 0 || number[0] > self->width ||
		    number[0] > vector->size - vector->used)
			return 0;
		vector->used += number[0];
		return check_labels(self, self->vectors + index + 1, &count) && count >= number[0];
	case RECORD:
		number = read_words(self, &self->value, 1);
		if (!number || vector->type != TYPE_STRUCT || number[0] != vector->size)
			return 0;
		index++;
		for (word i = 0; i < number[0]; i++, index = self->vectors[index].end)
			if (!check_value(self, index))
				return 0;
		return 1;
	default: return 0;
	}
}

static _Bool check_result(const model_data *data, const word *function) {
	const word *type = follow_word(data, function + TYPE, 1), *shape = follow_word(data, function + SHAPE, 1);
	const word *value = follow_word(data, function + VALUE, 1);
	result_check check = {data, type, shape, value, data->words + data->word_count, function[WIDTH], 0, {{0}}};
	return type && shape && value && check_vector(&check, 0) && check_value(&check, 0);
}

// What the calls of a plan do with a buffer: the bytes of its rows; and whether it holds DuckDB's
// strings, numbers, or the addresses that a call of `find_ends` has written. Those of the ends of
// strings are in the buffer `other`.
enum { UNUSED, NUMBERS, STRINGS, STARTS, ENDS };

typedef struct {
	word row_bytes, content, other;
} buffer;

// Kinds of words in a signature, and the roles of arrays: see `kernel_tables.py`.
enum { SIGNATURE_END, NUMBER_WORD, ARRAY_WORDS };
enum { CONSTANT_ROLE, MEMORY_ROLE, STRINGS_ROLE, STARTS_ROLE, ENDS_ROLE, ROWS_ROLE, ROWS_OR_NOTHING_ROLE };
enum { AXES, ITEM_BYTES, IS_CONTIGUOUS, IS_WRITTEN, ROLE, ARRAY_KIND_WORDS };

// A call of a plan while it is checked. `arguments` are the words that the argument check gets: with the
// addresses of constants, and with rows of which there is one, at the address 0.
typedef struct {
	const model_data *data;
	const word *words, *patches;
	word word_count, patch_count, next_patch;
	word buffer_count, starts;
	buffer *buffers;
	word *arguments;
} call_check;

#ifdef KERNEL_TABLES

// Return whether rows may be at a buffer: with the role of the kernel's argument, and inside the buffer.
static _Bool check_rows(call_check *call, const short *kind, const word *array, word i) {
	const word *patch_at = call->patches + 3 * call->next_patch;
	word axes = kind[AXES], item = kind[ITEM_BYTES], role = kind[ROLE];
	if (call->patch_count - call->next_patch < 2 || axes > 2)
		return 0;
	call->next_patch += 2;
	// The first patch sets the address, and the second the number of rows, or of items.
	if (patch_at[0] != i || patch_at[1] != 0 || patch_at[3] != i + 1 || patch_at[4] != 1)
		return 0;
	word number = (word)((uint64_t)patch_at[2] >> 32), offset = patch_at[2] & 0xFFFFFFFF, per_row = patch_at[5];
	if (number < 0 || number >= call->buffer_count || array[0] != 0 || array[1] != 0)
		return 0;
	word width = axes == 1 ? per_row : array[2], stride = axes == 1 ? per_row * item : array[3];
	if (width < 0 || width > MAX_ROW_BYTES || stride < 0 || stride > MAX_ROW_BYTES || stride % item != 0 ||
	    array[2 * axes] != item || (axes == 2 && per_row != 1) || (kind[IS_CONTIGUOUS] && stride != width * item))
		return 0;
	buffer *rows = call->buffers + number;
	if (offset % item != 0 || offset + width * item > stride || stride > rows->row_bytes)
		return 0;
	call->arguments[i + 1] = axes == 1 ? width : 1;
	_Bool is_whole = axes == 1 && offset == 0 && item == 8;
	switch (role) {
	case STRINGS_ROLE: return is_whole && rows->content == STRINGS && width == 2;
	case STARTS_ROLE: case ENDS_ROLE:
		if (!is_whole || width != 1)
			return 0;
		if (kind[IS_WRITTEN]) {
			if (rows->content != UNUSED)
				return 0;
			rows->content = role == STARTS_ROLE ? STARTS : ENDS;
			rows->other = call->starts;
			if (role == ENDS_ROLE && call->starts < 0)
				return 0;
		} else if (rows->content != (role == STARTS_ROLE ? STARTS : ENDS) ||
		           (role == ENDS_ROLE && rows->other != call->starts)) {
			return 0;
		}
		call->starts = role == STARTS_ROLE ? number : -1;
		return 1;
	case ROWS_ROLE: case ROWS_OR_NOTHING_ROLE:
		if (rows->content != UNUSED && rows->content != NUMBERS)
			return 0;
		rows->content = NUMBERS;
		return 1;
	default: return 0;
	}
}

// Return whether the words at `array` are a constant array inside the data, whose strides are those of a
// contiguous array.
static _Bool check_constant(call_check *call, const short *kind, const word *array, word i) {
	word axes = kind[AXES], bytes = kind[ITEM_BYTES], count = 1;
	_Bool may_be_constant = kind[ROLE] == CONSTANT_ROLE || kind[ROLE] == ROWS_OR_NOTHING_ROLE;
	if (kind[IS_WRITTEN] || !may_be_constant || !are_numbers(call->data, array + 1, 2 * axes))
		return 0;
	for (word axis = axes - 1; axis >= 0; axis--) {
		word length = array[1 + axis];
		if (length < 0 || length > call->data->array_size || array[1 + axes + axis] != bytes)
			return 0;
		if (length > 0 && bytes > INT64_MAX / length)
			return 0;
		bytes *= length > 0 ? length : 1, count *= length;
	}
	const char *items = find_array(call->data, array, count, kind[ITEM_BYTES]);
	call->arguments[i] = (word)items;
	return items && (kind[ROLE] == CONSTANT_ROLE || count == 0);
}

// Return whether a call's words fit the signature of the kernel, and what they describe may be used.
static _Bool check_call(call_check *call, word kernel) {
	const short *kind = signatures + signature_starts[kernel];
	word i = 0;
	memcpy(call->arguments, call->words, (size_t)call->word_count * 8);
	while (*kind != SIGNATURE_END) {
		const word *at = call->words + i;
		if (*kind++ == NUMBER_WORD) {
			if (i >= call->word_count || !are_numbers(call->data, at, 1))
				return 0;
			i++;
			continue;
		}
		word size = 1 + 2 * kind[AXES];
		if (size > call->word_count - i)
			return 0;
		if (kind[ROLE] == MEMORY_ROLE) {
			if (kind[AXES] != 1 || !are_numbers(call->data, at, 3) || at[0] != 0 || at[1] != INT64_MAX || at[2] != 1)
				return 0;
		} else if (get_kind(call->data, at) == ARRAY_PATCH) {
			if (!check_constant(call, kind, at, i))
				return 0;
		} else if (!are_numbers(call->data, at, size) || !check_rows(call, kind, at, i)) {
			return 0;
		}
		i += size, kind += ARRAY_KIND_WORDS;
	}
	if (i != call->word_count || call->next_patch != call->patch_count || kernel_checks[kernel] < 0)
		return 0;
	word (*check)(const word *) = (word(*)(const word *))get_kernel(kernel_checks[kernel], 0);
	return check && check(call->arguments) == 0;  // 0 is the result True.
}

// Return whether a table has `count` calls that are safe, each of at most `max_words` words.
static _Bool check_calls(const model_data *data, const word *plan, word first, word count, buffer *buffers, word *arguments) {
	for (word k = 0; k < count; k++) {
		const word *head = find_words(data, first, 3);
		if (!head || get_kind(data, head) != KERNEL_PATCH || !are_numbers(data, head + 1, 2))
			return 0;
		word kernel = head[0] < 0 || head[0] >= data->key_count ? -1 : find_kernel_number(data->keys + 16 * head[0]);
		word word_count = head[1], patch_count = head[2];
		if (kernel < 0 || word_count < 0 || word_count > plan[MAX_CALL_WORDS] || patch_count < 0 || patch_count > data->word_count)
			return 0;
		const word *words = find_words(data, first + 3, word_count);
		const word *patches = words ? find_words(data, first + 3 + word_count, 3 * patch_count) : 0;
		if (!patches || !are_numbers(data, patches, 3 * patch_count))
			return 0;
		call_check call = {data, words, patches, word_count, patch_count, 0, 2 + plan[BUFFERS], -1, buffers, arguments};
		if (!check_call(&call, kernel))
			return 0;
		first += 3 + word_count + 3 * patch_count;
	}
	return 1;
}
#endif

// Return whether the calls of a plan for small or for large batches are safe.
static _Bool check_batch(const model_data *data, const word *function, const word *plan, word table) {
	word count = plan[table + 1];
	if (count == NOT_BUILT)
		return get_kind(data, plan + table) == NO_PATCH;
	if (count < 1 || count > data->word_count || get_kind(data, plan + table) != WORD_PATCH)
		return 0;
#ifdef KERNEL_TABLES
	word buffer_count = 2 + plan[BUFFERS];
	const word *sizes = plan + PLAN_HEAD + plan[NUMBER_COLUMNS];
	buffer *buffers = calloc((size_t)buffer_count, sizeof *buffers);
	word *arguments = malloc((size_t)plan[MAX_CALL_WORDS] * 8 + 8);
	_Bool is_valid = buffers && arguments;
	if (is_valid) {
		buffers[0].row_bytes = 8 * plan[MATRIX_WIDTH];
		buffers[1].row_bytes = function[WIDTH] * plan[RESULT_BYTES];
		for (word i = 0; i < plan[BUFFERS]; i++)
			buffers[2 + i] = (buffer){sizes[i], i < plan[TEXT_COLUMNS] ? STRINGS : UNUSED, -1};
		is_valid = check_calls(data, plan, plan[table], count, buffers, arguments);
	}
	free(buffers), free(arguments);
	return is_valid;
#else
	(void)function;
	return 0;
#endif
}

static _Bool check_plan(const model_data *data, const word *function) {
	const word *plan = follow_word(data, function + FUNCTION_PLAN, PLAN_HEAD);
	if (!plan)
		return 0;
	for (word i = 0; i < PLAN_HEAD; i++)
		if (get_kind(data, plan + i) != NO_PATCH && i != SMALL_TABLE && i != LARGE_TABLE)
			return 0;
	if (plan[NUMBER_COLUMNS] < 0 || plan[NUMBER_COLUMNS] > MAX_COLUMNS || plan[TEXT_COLUMNS] < 0 ||
	    plan[TEXT_COLUMNS] > plan[BUFFERS] || plan[NUMBER_COLUMNS] + plan[TEXT_COLUMNS] != function[COLUMNS] ||
	    plan[MATRIX_WIDTH] < 0 || plan[MATRIX_WIDTH] > MAX_COLUMNS || plan[NUMBER_BYTES] != 8 ||
	    plan[BLOCK_ROWS] < 1 || plan[BLOCK_ROWS] > MAX_ROWS || plan[BUFFERS] < 0 || plan[BUFFERS] > MAX_BUFFERS ||
	    plan[MAX_CALL_WORDS] < 0 || plan[MAX_CALL_WORDS] > data->word_count ||
	    plan[RESULT_WIDTH] != function[WIDTH] || plan[RESULT_BYTES] != (function[IS_INTEGER] ? 4 : 8) ||
	    plan[LIST_LEVELS] != FLAT)
		return 0;
	word list_count = plan[NUMBER_COLUMNS] + plan[BUFFERS];
	const word *lists = find_words(data, *(function + FUNCTION_PLAN) + PLAN_HEAD, list_count);
	if (!lists || !are_numbers(data, lists, list_count))
		return 0;
	for (word i = 0; i < plan[NUMBER_COLUMNS]; i++)
		if (lists[i] < -1 || lists[i] >= plan[MATRIX_WIDTH])
			return 0;
	for (word i = 0; i < plan[BUFFERS]; i++) {
		word bytes = lists[plan[NUMBER_COLUMNS] + i];
		if (bytes < 0 || bytes > MAX_ROW_BYTES || (i < plan[TEXT_COLUMNS] && bytes != 16))
			return 0;
	}
	return check_batch(data, function, plan, SMALL_TABLE) && check_batch(data, function, plan, LARGE_TABLE);
}

// Return whether the arguments are valid, and fill each column of texts.
static _Bool check_arguments(const model_data *data, const word *function) {
	const word *plan = data->words + function[FUNCTION_PLAN], *first = follow_word(data, function + ARGUMENTS, 0);
	word count = function[ARGUMENT_COUNT], numbers = plan[NUMBER_COLUMNS];
	if (!first || count < 0 || count > MAX_ARGUMENTS || !find_words(data, first - data->words, count * ARGUMENT_WORDS))
		return 0;
	for (word i = 0; i < count; i++) {
		const word *argument = first + i * ARGUMENT_WORDS;
		word kind = argument[ARGUMENT_KIND], at = argument[POSITION], known = argument[KNOWN_COUNT];
		if (!are_numbers(data, argument, KNOWN) || !are_numbers(data, argument + KNOWN_COUNT, 1) || kind < TAKES_NUMBER ||
		    kind > TAKES_ANYTHING || at < -1 || at >= function[COLUMNS] || !is_message(data, argument[TYPE_MESSAGE]) ||
		    known < -1 || (kind == TAKES_ANYTHING && at >= 0) || (at >= 0 && (kind == TAKES_TEXT) != (at >= numbers)))
			return 0;
		if (known < 0 ? get_kind(data, argument + KNOWN) != NO_PATCH
		    : kind == TAKES_TEXT
		        ? known > data->word_count || !are_texts(data, follow_word(data, argument + KNOWN, 2 * known), known, 0)
		        : !find_array(data, argument + KNOWN, known, 8))
			return 0;
	}
	for (word column = numbers; column < function[COLUMNS]; column++) {
		word i = 0;
		while (i < count && first[i * ARGUMENT_WORDS + POSITION] != column)
			i++;
		if (i == count)
			return 0;
	}
	return 1;
}

// Return whether the checks of refused rows read only the matrix, the texts and the known numbers.
static _Bool check_messages(const model_data *data, const word *function) {
	const word *plan = data->words + function[FUNCTION_PLAN];
	word count = function[CHECK_COUNT];
	const word *check = count < 0 || count > data->word_count ? 0 : follow_word(data, function + CHECKS, count * CHECK_WORDS);
	if (!check || !is_message(data, function[OTHER_MESSAGE]))
		return 0;
	for (word i = 0; i < count; i++, check += CHECK_WORDS) {
		word kind = check[CHECK_KIND], column = check[CHECKED], quoted = check[QUOTED];
		_Bool has_column = column >= 0 && column < plan[MATRIX_WIDTH];
		if (!are_numbers(data, check, KNOWN_NUMBERS) || !are_numbers(data, check + KNOWN_NUMBER_COUNT, 1) ||
		    kind < IS_MISSING || kind > IS_UNKNOWN_NUMBER || !is_message(data, check[MESSAGE]) || quoted < -1 ||
		    quoted >= plan[TEXT_COLUMNS] || (kind == IS_MISSING_TEXT ? quoted < 0 : !has_column))
			return 0;
		if (kind == IS_UNKNOWN_NUMBER ? !find_array(data, check + KNOWN_NUMBERS, check[KNOWN_NUMBER_COUNT], 8)
		                              : !are_numbers(data, check + KNOWN_NUMBERS, 1))
			return 0;
	}
	return 1;
}

static _Bool check_function(const model_data *data, const word *function) {
	for (word i = 0; i < FUNCTION_WORDS; i++) {
		_Bool is_address = i == FUNCTION_PLAN || i == ARGUMENTS || i == TYPE || i == SHAPE || i == VALUE || i == CHECKS;
		if (get_kind(data, function + i) != (is_address ? WORD_PATCH : NO_PATCH))
			return 0;
	}
	return is_name(data, function[NAME]) && function[WIDTH] >= 1 && function[WIDTH] <= MAX_COLUMNS &&
	       check_plan(data, function) && check_arguments(data, function) && check_messages(data, function) &&
	       check_result(data, function);
}

// Return an error about the functions and tables of the data, or NULL if they are safe.
static const char *check_data(const model_data *data) {
	for (word k = 0; k < data->key_count; k++)
		if (find_kernel_number(data->keys + 16 * k) < 0)
			return "the model was compiled for another version of sqlml: export it again, or compile "
			       "the database with `sqlml native --clients DATABASE`";
	word next = data->functions;
	for (word table = 0; table < 2; table++) {
		word size = table ? TABLE_WORDS : FUNCTION_WORDS;
		const word *count = find_words(data, next, 1);
		if (!count || !are_numbers(data, count, 1) || *count < 0 || *count > data->word_count ||
		    !find_words(data, next + 1, *count * size))
			return DAMAGED;
		const word *item = count + 1;
		for (word i = 0; i < *count; i++, item += size) {
			if (!table && !check_function(data, item))
				return DAMAGED;
			if (table && (!are_numbers(data, item, TABLE_TEXTS) || !is_name(data, item[TABLE_NAME]) ||
			              item[TABLE_ROWS] < 0 || item[TABLE_ROWS] > data->word_count ||
			              !are_texts(data, follow_word(data, item + TABLE_TEXTS, 4 * item[TABLE_ROWS]), 2 * item[TABLE_ROWS], 1)))
				return DAMAGED;
		}
		next += 1 + *count * size;
	}
	return 0;
}

// ---- Exported models: functions -----------------------------------------------------------------

// Create the type that `code` describes: a number of DuckDB's, for LIST and MAP followed by the types
// of the items, for STRUCT by the number of fields, and the name and type of each.
static const word *create_type(const char *texts, const word *code, word *out) {
	word id = *code++, parts[2];
	switch (id) {
	case TYPE_LIST:
		code = create_type(texts, code, parts);
		*out = create_list_type(parts[0]);
		destroy_type(parts);
		return code;
	case TYPE_MAP:
		code = create_type(texts, create_type(texts, code, parts), parts + 1);
		*out = create_map_type(parts[0], parts[1]);
		destroy_type(parts), destroy_type(parts + 1);
		return code;
	case TYPE_STRUCT: {
		word count = *code++, names[MAX_FIELDS], types[MAX_FIELDS];
		for (word i = 0; i < count; i++) {
			names[i] = (word)(texts + *code++);
			code = create_type(texts, code, types + i);
		}
		*out = create_struct_type(types, names, count);
		for (word i = 0; i < count; i++)
			destroy_type(types + i);
		return code;
	}
	default: *out = create_logical_type(id); return code;
	}
}

static void init_model(model *self, const model_data *data, const word *function) {
	self->function = function;
	self->data = data;
	self->state[PLAN] = function[FUNCTION_PLAN];
	self->state[INDEX] = (word)self;
	self->state[BUILD_PLAN] = (word)refuse_plan;
	self->state[SCORE] = (word)refuse_rows;
	self->state[NO_MEMORY_TEXT] = (word) "out of memory while scoring a batch of rows";
	self->state[ALL_BATCHES] = (word)&batches;
}

// Register an exported function on a connection; return false if DuckDB refuses it.
static _Bool register_model(void *connection, const model_data *data, const word *function) {
	static const word types[] = {TYPE_ANY, TYPE_VARCHAR, TYPE_TIMESTAMP, TYPE_ANY};
	model *self = calloc(1, sizeof *self);
	if (!self)
		return 0;
	init_model(self, data, function);
	word handle = create_function(), type;
	set_function_name(handle, data->texts + function[NAME]);
	set_special_handling(handle);
	for (word i = 0; i < function[ARGUMENT_COUNT]; i++) {
		const word *argument = (const word *)function[ARGUMENTS] + i * ARGUMENT_WORDS;
		create_type(0, types + argument[ARGUMENT_KIND], &type);
		add_parameter(handle, type);
		destroy_type(&type);
	}
	create_type(data->texts, (const word *)function[TYPE], &type);
	set_return_type(handle, type);
	destroy_type(&type);
	set_extra_info(handle, self, 0);
	set_function_code(handle, score_model);
	int state = register_function(connection, handle);
	destroy_function(&handle);
	if (state != 0)
		free(self);
	return state == 0;
}

// A table function of two columns, without arguments.
typedef struct {
	const word *words;
	const model_data *data;
} table;

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
	const table *whole = (const table *)get_table_extra_info(info);
	const word *self = whole->words, *texts = (const word *)self[TABLE_TEXTS];
	word *next_row = get_init_data(info), count = 0;
	for (; next_row && *next_row < self[TABLE_ROWS] && count < MAX_ROWS; count++, ++*next_row)
		for (word column = 0; column < 2; column++) {
			const word *text = texts + 4 * *next_row + 2 * column;
			assign_text(duckdb_data_chunk_get_vector(chunk, column), count,
			            whole->data->texts + text[0], text[1]);
		}
	set_chunk_size(chunk, count);
}

static _Bool register_table(void *connection, const model_data *data, const word *words) {
	table *self = malloc(sizeof *self);
	if (!self)
		return 0;
	*self = (table){words, data};
	word handle = create_table_function();
	set_table_function_name(handle, data->texts + words[TABLE_NAME]);
	set_table_extra_info(handle, self, 0);
	set_table_bind(handle, bind_table);
	set_table_init(handle, start_table);
	set_table_code(handle, fill_table);
	int state = register_table_function(connection, handle);
	destroy_table_function(&handle);
	if (state != 0)
		free(self);
	return state == 0;
}

// ---- The database's models ----------------------------------------------------------------------

// A client that loads the library without models calls those of its databases by the macros in the
// files (`planner/model_sql/macro_bodies.py`). A macro reads a model's data from the catalog, and calls
//
//     sqlml_open_a_session_first_score_TYPE(sqlml_open_a_session_first_keep(DATA), FUNCTION, COLUMN, ..)
//
// so a query uses the version of the model that its transaction sees.
#define PREFIX "sqlml_open_a_session_first_"

// Data that has been kept: what the catalog has, and its functions. It is never freed, since running
// queries may use it.
typedef struct {
	char *content;
	word size, count;
	model_data data;
	model *functions;
} kept_models;

static kept_models **kept;
static word kept_count;
static char is_locked;

static void lock(char *flag) {
	while (__atomic_test_and_set(flag, __ATOMIC_ACQUIRE))
		;
}

static void unlock(char *flag) { __atomic_clear(flag, __ATOMIC_RELEASE); }

// What begins compressed data; its size and a block of the format LZ4 follow.
#define COMPRESSED "sqlml z\n"
#define COMPRESSED_SIZE 16
#define MAX_RATIO 255

// Read a length of the format LZ4, whose first four bits are `length`; return -1 if it is not complete.
static word read_length(const unsigned char **in, const unsigned char *end, word length) {
	for (_Bool continues = length == 15; continues;) {
		if (*in == end)
			return -1;
		continues = **in == 255;
		length += *(*in)++;
	}
	return length;
}

// Decompress a block of the format LZ4; return whether it has exactly `out_size` bytes.
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md describes the format.
static _Bool decompress(const unsigned char *in, word size, char *out, word out_size) {
	const unsigned char *end = in + size;
	word done = 0;
	while (in < end) {
		unsigned char token = *in++;
		word length = read_length(&in, end, token >> 4);
		if (length < 0 || length > end - in || length > out_size - done)
			return 0;
		memcpy(out + done, in, (size_t)length);
		in += length, done += length;
		if (in == end)
			break;
		if (end - in < 2)
			return 0;
		word distance = in[0] | in[1] << 8;
		in += 2;
		length = read_length(&in, end, token & 15);
		if (length < 0 || distance < 1 || distance > done || length + 4 > out_size - done)
			return 0;
		for (word last = done + length + 4; done < last; done++)
			out[done] = out[done - distance];
	}
	return done == out_size;
}

// Check a model's data, and prepare its functions; return an error, or NULL.
static const char *open_models(const char *content, word content_size, kept_models *self) {
	word size = 0;
	if (content_size < COMPRESSED_SIZE || memcmp(content, COMPRESSED, 8) != 0)
		return "the data is of another version of sqlml: run `sqlml native --clients` for the database";
	memcpy(&size, content + 8, 8);
	if (size < 0 || size > MAX_RATIO * content_size)
		return DAMAGED;
	char *memory = malloc((size_t)(size + 64 + content_size));
	if (!memory)
		return "out of memory";
	char *bytes = (char *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
	const char *error = DAMAGED;
	if (decompress((const unsigned char *)content + COMPRESSED_SIZE, content_size - COMPRESSED_SIZE, bytes, size))
		error = read_data(bytes, size, &self->data);
	self->content = bytes + size, self->size = content_size;
	memcpy(self->content, content, (size_t)content_size);
	if (!error)
		error = check_data(&self->data);
	if (!error) {
		self->count = self->data.words[self->data.functions];
		self->functions = calloc((size_t)self->count + 1, sizeof *self->functions);
		error = self->functions ? 0 : "out of memory";
	}
	if (error) {
		free_data(&self->data);
		free(memory);
		return error;
	}
	relocate_words(&self->data);
	const word *function = self->data.words + self->data.functions + 1;
	for (word i = 0; i < self->count; i++, function += FUNCTION_WORDS)
		init_model(self->functions + i, &self->data, function);
	return 0;
}

// Return the number of the kept data with these bytes, or 0, and an error.
static word find_kept(const char *bytes, word size, const char **error) {
	for (word i = 0; i < kept_count; i++)
		if (kept[i]->size == size && memcmp(kept[i]->content, bytes, (size_t)size) == 0)
			return i + 1;
	kept_models **more = realloc(kept, (size_t)(kept_count + 1) * sizeof *kept);
	kept_models *self = calloc(1, sizeof *self);
	if (more)
		kept = more;
	*error = more && self ? open_models(bytes, size, self) : "out of memory";
	if (*error) {
		free(self);
		return 0;
	}
	kept[kept_count] = self;
	return ++kept_count;
}

// What begins the data of a model that needs Python; the reason follows.
#define REFUSED "sqlml: "
#define REFUSED_SIZE (sizeof REFUSED - 1)

// Keep the data of each row; the results are numbers of kept data.
static void keep_models(word info, word chunk, word out) {
	word rows = duckdb_data_chunk_get_size(chunk), vector = duckdb_data_chunk_get_vector(chunk, 0);
	const char *items = (const char *)duckdb_vector_get_data(vector);
	const uint64_t *mask = (const uint64_t *)duckdb_vector_get_validity(vector);
	word *numbers = (word *)duckdb_vector_get_data(out);
	for (word r = 0; r < rows; r++) {
		uint32_t size = 0;
		const char *error = 0;
		numbers[r] = 0;
		if (is_null(mask, r))
			continue;
		const char *bytes = read_string(items + 16 * r, &size);
		if (size == 0) {
			set_error(info, "the model of this view was dropped: create the view again with sqlml");
			return;
		}
		if (size >= REFUSED_SIZE && memcmp(bytes, REFUSED, REFUSED_SIZE) == 0) {
			char message[1024];
			snprintf(message, sizeof message, "this model needs a session of sqlml: %.*s",
			         (int)(size - REFUSED_SIZE), bytes + REFUSED_SIZE);
			set_error(info, message);
			return;
		}
		lock(&is_locked);
		numbers[r] = find_kept(bytes, size, &error);
		unlock(&is_locked);
		if (error) {
			set_error(info, error);
			return;
		}
	}
}

// The types of results: a label or a value, or a MAP of probabilities, and lists of these.
typedef struct {
	const char *name;
	word count, type[4];
} result_type;

#define RESULT_TYPES(name, type)                                                                    \
	{name, 1, {type}}, {name "_list", 2, {TYPE_LIST, type}}, {"map_" name, 3, {TYPE_MAP, type, TYPE_DOUBLE}}, \
	{"map_" name "_list", 4, {TYPE_LIST, TYPE_MAP, type, TYPE_DOUBLE}}

static const result_type result_types[] = {
	RESULT_TYPES("boolean", TYPE_BOOLEAN), RESULT_TYPES("tinyint", TYPE_TINYINT),
	RESULT_TYPES("smallint", TYPE_SMALLINT), RESULT_TYPES("integer", TYPE_INTEGER),
	RESULT_TYPES("bigint", TYPE_BIGINT), RESULT_TYPES("utinyint", TYPE_UTINYINT),
	RESULT_TYPES("usmallint", TYPE_USMALLINT), RESULT_TYPES("uinteger", TYPE_UINTEGER),
	RESULT_TYPES("ubigint", TYPE_UBIGINT), RESULT_TYPES("float", TYPE_FLOAT),
	RESULT_TYPES("double", TYPE_DOUBLE), RESULT_TYPES("varchar", TYPE_VARCHAR),
};

// Return the function of kept data that a call names, or NULL, if the result has another type or the
// call another number of arguments.
static const model *find_function(word number, const char *name, uint32_t size, const result_type *type, word arguments) {
	lock(&is_locked);
	kept_models *models_at = number >= 1 && number <= kept_count ? kept[number - 1] : 0;
	unlock(&is_locked);
	for (word i = 0; models_at && i < models_at->count; i++) {
		const word *function = models_at->functions[i].function, *result = (const word *)function[TYPE];
		const char *text = models_at->data.texts + function[NAME];
		if (strlen(text) != size || memcmp(text, name, size) != 0 || function[ARGUMENT_COUNT] != arguments)
			continue;
		word k = 0;
		while (k < type->count && result[k] == type->type[k])
			k++;
		return k == type->count ? models_at->functions + i : 0;
	}
	return 0;
}

// Score a chunk of rows with a function of kept data.
static void score_kept(word info, word chunk, word out) {
	const result_type *type = (const result_type *)duckdb_scalar_function_get_extra_info(info);
	word rows = duckdb_data_chunk_get_size(chunk), columns = duckdb_data_chunk_get_column_count(chunk);
	const word *numbers = (const word *)duckdb_vector_get_data(duckdb_data_chunk_get_vector(chunk, 0));
	const char *names = (const char *)duckdb_vector_get_data(duckdb_data_chunk_get_vector(chunk, 1));
	if (rows == 0)
		return;
	for (word column = 0; column < 2; column++) {
		const uint64_t *mask = (const uint64_t *)duckdb_vector_get_validity(duckdb_data_chunk_get_vector(chunk, column));
		for (word r = 0; r < rows; r++)
			if (is_null(mask, r)) {
				set_error(info, "the database has no machine code of this model: create the model or the view again with sqlml");
				return;
			}
	}
	for (word r = 1; r < rows; r++)
		if (numbers[r] != numbers[0] || memcmp(names + 16 * r, names, 16) != 0) {
			set_error(info, "the model must be the same for all rows");
			return;
		}
	uint32_t size;
	const char *name = read_string(names, &size);
	const model *self = find_function(numbers[0], name, size, type, columns - 2);
	if (self)
		score_chunk(self, info, chunk, 2, out);
	else
		set_error(info, "the macro does not fit the model: create the model again with sqlml");
}

// A function whose type tells the macros that this library scores, and not a session of Python.
static void name_client(word info, word chunk, word out) {
	(void)info;
	for (word r = duckdb_data_chunk_get_size(chunk) - 1; r >= 0; r--)
		assign_text(out, r, "runtime", 7);
}

// The codes of texts that the SQL of a view does not find among the categories, below those that it
// finds (`udfs/make_function.py`).
static void refuse_texts(word info, word chunk, word out) {
	(void)info;
	word vector = duckdb_data_chunk_get_vector(chunk, 0);
	const uint64_t *mask = (const uint64_t *)duckdb_vector_get_validity(vector);
	int32_t *codes = (int32_t *)duckdb_vector_get_data(out);
	for (word r = duckdb_data_chunk_get_size(chunk) - 1; r >= 0; r--)
		codes[r] = is_null(mask, r) ? -2 : -1;
}

// Register a function of one argument, or none; return false if DuckDB refuses it.
static _Bool register_helper(void *connection, const char *name, word argument, word result, void (*code)(word, word, word)) {
	word handle = create_function(), type;
	set_function_name(handle, name);
	if (argument) {
		type = create_logical_type(argument);
		add_parameter(handle, type);
		destroy_type(&type);
	}
	type = create_logical_type(result);
	set_return_type(handle, type);
	destroy_type(&type);
	set_function_code(handle, code);
	int state = register_function(connection, handle);
	destroy_function(&handle);
	return state == 0;
}

static _Bool register_score(void *connection, const result_type *self) {
	char name[64];
	word handle = create_function(), any = create_logical_type(TYPE_ANY), type;
	snprintf(name, sizeof name, PREFIX "score_%s", self->name);
	set_function_name(handle, name);
	set_special_handling(handle);
	for (word id = TYPE_BIGINT; id <= TYPE_VARCHAR; id += TYPE_VARCHAR - TYPE_BIGINT) {
		type = create_logical_type(id);
		add_parameter(handle, type);
		destroy_type(&type);
	}
	set_varargs(handle, any);
	create_type(0, self->type, &type);
	set_return_type(handle, type);
	destroy_type(&any), destroy_type(&type);
	set_extra_info(handle, (void *)(uintptr_t)self, 0);
	set_function_code(handle, score_kept);
	int state = register_function(connection, handle);
	destroy_function(&handle);
	return state == 0;
}

// Register the functions that the macros of databases call, unless a session of Python has them.
static void register_catalog_functions(void *connection) {
	if (!register_helper(connection, PREFIX "client", 0, TYPE_VARCHAR, name_client))
		return;
	register_helper(connection, PREFIX "keep", TYPE_BLOB, TYPE_BIGINT, keep_models);
	register_helper(connection, PREFIX "refused_text", TYPE_VARCHAR, TYPE_INTEGER, refuse_texts);
	for (size_t i = 0; i < sizeof result_types / sizeof *result_types; i++)
		register_score(connection, result_types + i);
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

// The models behind the library, and the checksum of their data.
static model_data models;
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
	word begin = size - FOOTER - (word)sizeof end;
	const char *error = 0;
	if (memcmp(end.magic, MAGIC, 6) != 0)  // The version is in the data, too.
		error = models.words ? CHANGED : 0;
	else if (end.size < (word)sizeof(header) || end.size > begin || (begin - end.size) % 64 != 0)
		error = DAMAGED;
	else if (models.words)  // The system's loader returns a library that has been loaded under a path.
		error = ((const header *)(bytes + begin - end.size))->checksum == loaded_checksum ? 0 : CHANGED;
	else if (!has_code())
		error = "the file has no machine code for this processor: export the model with a wheel";
	else {
		model_data data = {0};
		error = read_data(bytes + begin - end.size, end.size, &data);
		if (!error)
			error = check_data(&data);
		if (!error) {
			relocate_words(&data);
			models = data;
			loaded_checksum = ((const header *)(bytes + begin - end.size))->checksum;
			return 0;  // The data stays mapped.
		}
		free_data(&data);
	}
	unmap_file(bytes, size);
	return error;
}

// Register the functions of models on a connection; return an error, or NULL.
static const char *register_models(void *connection, const model_data *data) {
	const word *list = data->words + data->functions;
	for (word count = *list++; count > 0; count--, list += FUNCTION_WORDS)
		if (!register_model(connection, data, list))
			return "DuckDB refuses a function of the model, perhaps because another has its name";
	for (word count = *list++; count > 0; count--, list += TABLE_WORDS)
		if (!register_table(connection, data, list))
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
// wrapper when the function below returns. Python loads a library without kernels. Another library
// closes its connection, which would keep the database open.
EXPORTED void *sqlml_connection;

EXPORTED _Bool sqlml_init_c_api(void *info, extension_access *access) {
	void *const *api = access->get_api(info, "v1.2.0");
	void **database = access->get_database(info);
	if (!api || !database)
		return 0;
	// Threads of a process may load the library for several databases at once.
	lock(&is_locked);
	memcpy(sqlml_duckdb_api, api, sizeof sqlml_duckdb_api);
	score_columns = (word(*)(word, word, word, word, word, word))get_kernel(SCORE_COLUMNS, 1);
	const char *error = load_models();
	unlock(&is_locked);
	void *connection = 0;
	if (!error && connect_to(*database, &connection) != 0)
		return 0;
	if (!error && (models.words || has_code())) {
		if (models.words)
			error = register_models(connection, &models);
		else
			register_catalog_functions(connection);
		disconnect(&connection);
	} else if (!error) {
		sqlml_connection = connection;
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
