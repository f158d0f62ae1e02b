// Run the statements of a file in DuckDB's client for Node, and print the rows of the last one.
const { DuckDBInstance } = require("@duckdb/node-api");
const fs = require("fs");

async function main(path) {
  const database = await DuckDBInstance.create(":memory:", { allow_unsigned_extensions: "true" });
  const connection = await database.connect();
  let rows = [];
  for (const sql of fs.readFileSync(path, "utf8").split("; "))
    rows = (await connection.runAndReadAll(sql)).getRows();
  console.log(JSON.stringify(rows.map(([name, differing]) => [name, Number(differing)])));
}

main(process.argv[2]).catch((error) => {
  console.error(String(error));
  process.exit(1);
});
