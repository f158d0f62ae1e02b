// What DuckDB loads as the extension `sqlml`: it opens a connection on the database that loads it,
// and leaves it where Python finds it (connection.py). Functions are registered through that one.
typedef struct {
	void (*set_error)(void *info, const char *error);
	void **(*get_database)(void *info);
	const void *(*get_api)(void *info, const char *version);
} duckdb_extension_access;

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

EXPORTED int (*sqlml_connect)(void *database, void **connection);
EXPORTED void *sqlml_connection;

// The database must be connected to at once: the wrapper around it is freed when this returns.
EXPORTED _Bool sqlml_init_c_api(void *info, duckdb_extension_access *access) {
	if (!access->get_api(info, "v1.2.0") || !sqlml_connect)
		return 0;
	void **database = access->get_database(info);
	return database && sqlml_connect(*database, &sqlml_connection) == 0;
}
