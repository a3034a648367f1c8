// SPDX-License-Identifier: Apache-2.0
// Reads {"document", "answers": [{"name", "schema": a JSON pointer, "value"}]}; prints what is wrong with them: the
// document as OpenAPI, and each answer by its schema, where members that the schema doesn't name are wrong, too.
import {readFileSync} from "node:fs";
import Ajv from "ajv/dist/2020.js";
import formats from "ajv-formats";
import {Validator} from "@seriousme/openapi-schema-validator";

const {document, answers} = JSON.parse(readFileSync(0, "utf8"));
const checked = await new Validator().validate(structuredClone(document));
const wrong = checked.valid ? [] : [{name: "the document", errors: checked.errors}];
if (checked.valid) {
  const strict = structuredClone(document);
  for (const schema of Object.values(strict.components.schemas))
    if (schema.properties) schema.additionalProperties = false;
  const ajv = formats.default(new Ajv.default({strict: false, allErrors: true}));
  ajv.addSchema(strict, "document");
  for (const {name, schema, value} of answers) {
    const check = ajv.getSchema(`document#${schema}`);
    if (!check) wrong.push({name, errors: `there is no ${schema}`});
    else if (!check(value)) wrong.push({name, errors: check.errors, value});
  }
}
console.log(JSON.stringify(wrong));
